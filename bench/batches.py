"""Batches: many loops at once, loops of different length, and a Hessian through a long loop.

Three things are measured. 32 loops on arrays of 8 to 64 numbers, as one batch and one after the other, each with its
gradient; beside both with the adjoint by hand in NumPy, and beside `torch.func.vmap` and `jax.vmap` of the same Python
loop; and the batch as a fragment, which is traced once, beside JAX's compiled loop. A batch of loops that stop by a
value after 10 to 1,000 steps: how many steps of members it computes, over how many they make alone, and its time over
that of the members. And the Hessian of a hidden Markov model's likelihood, 64 parameters and 3,000 steps, beside JAX's
after compiling. Times are processor time, the least of the rounds; every library has a process of its own, they take
turns, and results are compared.

Where the products and hyperbolic tangents of a batch alone take longer than the bar allows for all of it, that is said:
then no batch by this BLAS meets the bar, since runs alone multiply nearly as fast as it can. `OPENBLAS_CORETYPE`
chooses its kernels, and not those of JAX.

    python bench/batches.py                 the tables, and the bars they are held to
    python bench/batches.py --json out.json the numbers as well
    python bench/batches.py --quick         a short run that checks the harness; no bars

Exits with 1 if a bar is missed.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import harness
from harness import Bar, Worker, participants, serve

PACKAGES = {"unspool": "unspool", "by hand": "numpy", "torch": "torch", "jax": "jax", "jax compiled": "jax"}
MEMBERS = 32
SIZES = (8, 16, 32, 64)
STEPS = 200
SHARE = 0.25
SHORTEST, LONGEST = 10, 1000
STATES, SIGNS, SEQUENCE = 8, 10, 3000
TURNS = 3
AGREEMENT = 1e-8

Measured = dict[str, float]


def least(function: Callable[[], Any], rounds: int) -> float:
    """Return the least processor time of a function, in milliseconds; what happens once is left out."""
    function()
    times = []
    for _ in range(rounds + 1):
        begin = time.process_time()
        function()
        times.append(time.process_time() - begin)
    return 1e3 * min(times)


# --- 32 loops ---------------------------------------------------------------------------------------------------------


def relaxation(size: int) -> tuple[Any, Any]:
    """Return the matrix of the loop, and where its members start."""
    import numpy as np

    generator = np.random.default_rng(0)
    return generator.normal(size=(size, size)) / math.sqrt(size), generator.normal(size=(MEMBERS, size))


def products(size: int, steps: int) -> Callable[[], None]:
    """Return what makes the products and hyperbolic tangents of the batch and its gradient, and nothing else."""
    import numpy as np

    matrix, starts = relaxation(size)
    across, result = np.ascontiguousarray(matrix.T), np.empty_like(starts)

    def run() -> None:
        for _ in range(steps):
            np.matmul(starts, across, out=result)
            np.tanh(starts, out=result)
            np.matmul(starts, matrix, out=result)

    return run


def loops_in_unspool(size: int, steps: int, rounds: int) -> Measured:
    """Measure the batch and its members, one after the other."""
    import unspool as us

    matrix, starts = relaxation(size)
    w = us.tensor(matrix)

    def loss(x: us.Tensor) -> us.Tensor:
        y, _ = us.iterate(lambda y: y + 0.1 * (us.tanh(w @ y) - y), x, max_steps=steps)
        return us.sum(y * y)

    both = us.value_and_grad(loss)
    batch, members = us.vmap(both), lambda: [us.eval(both(us.tensor(x))) for x in starts]
    once = us.fragment(batch)
    return {
        "batch": least(lambda: us.eval(batch(us.tensor(starts))), rounds),
        "once": least(lambda: us.eval(once(us.tensor(starts))), rounds),
        "members": least(members, rounds),
        "products": least(products(size, steps), rounds),
        "answer": float(us.sum(batch(us.tensor(starts))[1])),
    }


def loops_by_hand(size: int, steps: int, rounds: int) -> Measured:
    """Measure the batch and its members with the adjoint by hand in NumPy, which makes no array in a step."""
    import numpy as np

    matrix, starts = relaxation(size)
    across = np.ascontiguousarray(matrix.T)

    def both(start: Any) -> tuple[Any, Any]:
        y, product, small = start.copy(), np.empty_like(start), np.empty_like(start)
        kept = np.empty((steps, *start.shape))
        for t in kept:
            np.matmul(y, across, out=product)
            np.tanh(product, out=t)
            np.subtract(t, y, out=small)
            np.multiply(small, 0.1, out=small)
            np.add(y, small, out=y)
        value, ct = (y * y).sum(axis=-1), 2.0 * y
        for t in kept[::-1]:
            np.multiply(ct, 0.1, out=small)
            np.subtract(ct, small, out=ct)
            np.multiply(t, t, out=t)
            np.subtract(1.0, t, out=t)
            np.multiply(small, t, out=small)
            np.matmul(small, matrix, out=product)
            np.add(ct, product, out=ct)
        return value, ct

    return {
        "batch": least(lambda: both(starts), rounds),
        "members": least(lambda: [both(start) for start in starts], rounds),
        "answer": float(both(starts)[1].sum()),
    }


def loops_in_torch(size: int, steps: int, rounds: int) -> Measured:
    """Measure `torch.func.vmap` of the loop as its users write it."""
    import torch

    torch.set_num_threads(1)
    matrix, starts = map(torch.tensor, relaxation(size))

    def loss(x: Any) -> Any:
        y = x
        for _ in range(steps):
            y = y + 0.1 * (torch.tanh(matrix @ y) - y)
        return (y * y).sum()

    batch = torch.func.vmap(torch.func.grad_and_value(loss))
    return {"batch": least(lambda: batch(starts), rounds), "answer": float(batch(starts)[0].sum())}


def loops_in_jax(size: int, steps: int, rounds: int, *, compiled: bool) -> Measured:
    """Measure `jax.vmap` of the same loop, or of a compiled one."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    matrix, starts = map(jnp.asarray, relaxation(size))

    def step(y: Any) -> Any:
        return y + 0.1 * (jnp.tanh(matrix @ y) - y)

    def plain(x: Any) -> Any:
        for _ in range(steps):
            x = step(x)
        return (x * x).sum()

    def scanned(x: Any) -> Any:
        y, _ = jax.lax.scan(lambda y, _: (step(y), None), x, None, length=steps)
        return (y * y).sum()

    batch = jax.vmap(jax.value_and_grad(scanned if compiled else plain))
    batch = jax.jit(batch) if compiled else batch
    answer = float(batch(starts)[1].sum())
    return {"batch": least(lambda: jax.block_until_ready(batch(starts)), rounds if compiled else 1), "answer": answer}


# --- loops of different length ---------------------------------------------------------------------------------------


def ragged_in_unspool(size: int, rounds: int) -> Measured:
    """Measure a batch of loops that stop by a value, its members, and how many steps of members each computes."""
    import numpy as np

    import unspool as us

    lengths = np.geomspace(SHORTEST, LONGEST, MEMBERS)
    rates = np.exp(-math.log(1e6) / lengths)
    start = us.tensor(np.linspace(0.5, 1.0, size))
    computed = [0]

    def kernel(x: Any) -> Any:
        computed[0] += x.size
        return np.tanh(x)

    slope = (lambda ct, out, x: ct * (1.0 - out * out),)
    counted = us.op("counted tanh", kernel=kernel, infer="elementwise", vjp=slope, replace=True)

    def last(r: us.Tensor, tanh: Callable[[Any], Any]) -> tuple[us.Tensor, Any]:
        return us.iterate(lambda x: r * tanh(x), start, until=lambda new: us.max(abs(new)) < 1e-6)

    def counting(run: Callable[[], Any]) -> int:
        computed[0] = 0
        run()
        return computed[0]

    of_batch = counting(lambda: us.eval(us.vmap(lambda r: last(r, counted))(rates)))
    alone = counting(lambda: [us.eval(last(us.tensor(r), counted)[0]) for r in rates])
    both = us.value_and_grad(lambda r: us.sum(last(r, us.tanh)[0]))
    batch = us.vmap(both)
    return {
        "work": of_batch / alone,
        "batch": least(lambda: us.eval(batch(us.tensor(rates))), rounds),
        "members": least(lambda: [us.eval(both(us.tensor(r))) for r in rates], rounds),
        "steps": float(us.sum(us.vmap(lambda r: last(r, us.tanh)[1])(rates))),
    }


# --- the Hessian of a hidden Markov model ----------------------------------------------------------------------------


def observations(steps: int) -> tuple[Any, Any, Any]:
    """Return transitions, emissions and what was seen."""
    import numpy as np

    generator = np.random.default_rng(2)
    matrices = 0.3 * generator.normal(size=(STATES, STATES)), 0.3 * generator.normal(size=(STATES, SIGNS))
    return *matrices, generator.integers(0, SIGNS, steps)


def hessian_in_unspool(steps: int, rounds: int) -> Measured:
    """Measure the Hessian of the mean log-likelihood in the 64 logits of the transitions."""
    import numpy as np

    import unspool as us

    transitions, emissions, seen = observations(steps)
    shown = emissions - np.log(np.exp(emissions).sum(axis=1, keepdims=True))
    rows, order = us.constant(np.ascontiguousarray(shown.T)), us.constant(seen)

    def likelihood(logits: us.Tensor) -> us.Tensor:
        log_t = logits - us.logsumexp(logits, axis=1, keepdims=True)

        def step(state: Any) -> Any:
            a, k = state
            return us.logsumexp(a[:, None] + log_t, axis=0) + rows[order[k]], k + 1

        (a, _), _ = us.iterate(step, (rows[int(seen[0])], 1), max_steps=steps - 1)
        return us.logsumexp(a) * (1.0 / steps)

    hessian = us.hessian(likelihood)
    answer = float(us.sum(hessian(us.tensor(transitions)) ** 2))
    return {"hessian": least(lambda: hessian(us.tensor(transitions)).eval(), rounds), "answer": answer}


def hessian_in_jax(steps: int, rounds: int) -> Measured:
    """Measure the same, compiled."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    transitions, emissions, seen = map(jnp.asarray, observations(steps))
    logsumexp = jax.scipy.special.logsumexp
    rows = (emissions - logsumexp(emissions, axis=1, keepdims=True)).T

    def likelihood(logits: Any) -> Any:
        log_t = logits - logsumexp(logits, axis=1, keepdims=True)
        a, _ = jax.lax.scan(
            lambda a, sign: (logsumexp(a[:, None] + log_t, axis=0) + rows[sign], None), rows[seen[0]], seen[1:]
        )
        return logsumexp(a) / steps

    hessian = jax.jit(jax.hessian(likelihood))
    answer = float((hessian(transitions) ** 2).sum())
    return {"hessian": least(lambda: hessian(transitions).block_until_ready(), rounds), "answer": answer}


# --- the tables ------------------------------------------------------------------------------------------------------


def answer(name: str, what: str, size: int, steps: int, rounds: int) -> Measured:
    """Be a worker: measure one thing in one library."""
    if what == "loops":
        if name == "unspool":
            return loops_in_unspool(size, steps, rounds)
        if name == "by hand":
            return loops_by_hand(size, steps, rounds)
        if name == "torch":
            return loops_in_torch(size, steps, rounds)
        return loops_in_jax(size, steps, rounds, compiled=name == "jax compiled")
    if what == "ragged":
        return ragged_in_unspool(size, rounds)
    return hessian_in_unspool(steps, rounds) if name == "unspool" else hessian_in_jax(steps, rounds)


def ask(workers: dict[str, Worker], turns: int, **request: Any) -> dict[str, Measured]:
    """Ask workers in turn; return the least of each number, which is what others on the machine disturb least."""
    found: dict[str, Measured] = {}
    for turn in range(turns):
        for name, worker in workers.items():
            if turn and name == "jax":
                continue  # step by step it takes seconds
            answers = worker.ask(**request)
            before = found.get(name, answers)
            found[name] = {what: min(number, before[what]) for what, number in answers.items()}
    return found


def agree(found: dict[str, Measured]) -> None:
    """Stop if libraries differ in what they computed."""
    ours = found["unspool"]["answer"]
    for name, measured in found.items():
        if not math.isclose(measured["answer"], ours, rel_tol=AGREEMENT):
            raise SystemExit(f"{name} computed {measured['answer']!r}, unspool {ours!r}")


def main() -> int:
    """Measure, print and decide."""
    options = harness.options(__doc__.splitlines()[0])
    if options.worker:
        serve(lambda **request: answer(options.worker, **request))
        return 0
    harness.one_core()
    names = participants(PACKAGES)
    quick = options.quick
    steps, rounds, sizes, turns = (20, 1, (8,), 1) if quick else (STEPS, 5, SIZES, TURNS)
    bars: list[Bar] = []
    bounds: list[str] = []
    numbers: dict[str, Any] = {}
    with ExitStack() as stack:
        workers = {name: stack.enter_context(Worker(__file__, name)) for name in names}
        print(f"\n{MEMBERS} loops of {steps} steps with gradients, milliseconds")
        peers = [n for n in names if n not in ("unspool", "by hand")]
        others = "".join(f"{n:>14}" for n in peers)
        cells = f"{'one by one':>12}{'batch':>9}{'traced once':>13}{'products':>10}"
        print(f"{'numbers':>8}{cells}{'by hand: one by one':>22}{'batch':>9}{others}")
        for size in sizes:
            found = ask(workers, turns, what="loops", size=size, steps=steps, rounds=rounds)
            agree(found)
            ours = found["unspool"]
            others = "".join(f"{found[n]['batch']:>14.2f}" for n in peers)
            cells = f"{ours['members']:>12.2f}{ours['batch']:>9.2f}{ours['once']:>13.2f}{ours['products']:>10.2f}"
            by_hand = f"{found['by hand']['members']:>22.2f}{found['by hand']['batch']:>9.2f}"
            print(f"{size:>8}{cells}{by_hand}{others}", flush=True)
            bars.append(
                Bar(f"{MEMBERS} loops on {size} numbers, over one by one", ours["batch"] / ours["members"], SHARE, "×")
            )
            bound = ours["products"] / ours["members"]
            if bound > SHARE:
                bounds.append(f"on {size} numbers products and tanh of the batch alone take {bound:.2f} of one by one")
            for name in [name for name in ("by hand", "torch", "jax") if name in names]:
                what = (
                    f"{MEMBERS} loops on {size} numbers, over {'the batch' if name == 'by hand' else 'vmap of'} {name}"
                )
                bars.append(Bar(what, ours["batch"] / found[name]["batch"], 1.0, "×"))
            if "jax compiled" in names:
                what = f"{MEMBERS} loops on {size} numbers, traced once, over compiled vmap of jax"
                bars.append(Bar(what, ours["once"] / found["jax compiled"]["batch"], 1.0, "×"))
            numbers[f"loops on {size}"] = found
        alone = {"unspool": workers["unspool"]}
        ragged = ask(alone, turns, what="ragged", size=8, steps=0, rounds=rounds)["unspool"]
        print(f"\nloops of {SHORTEST} to {LONGEST} steps, {ragged['steps']:.0f} in all, with gradients, milliseconds")
        print(
            f"one by one {ragged['members']:.1f}, batch {ragged['batch']:.1f}; steps computed over steps made ", end=""
        )
        print(f"{ragged['work']:.3f}")
        bars.append(Bar("loops of different length: work over that of the members alone", ragged["work"], 1.3, "×"))
        bars.append(
            Bar("loops of different length: time, over one by one", ragged["batch"] / ragged["members"], 1.0, "×")
        )
        length = 100 if quick else SEQUENCE
        takers = {name: workers[name] for name in names if name in ("unspool", "jax compiled")}
        found = ask(takers, turns, what="hessian", size=0, steps=length, rounds=rounds)
        agree(found)
        numbers |= {"ragged": ragged, "hessian": found}
        print(f"\nHessian in {STATES * STATES} parameters through {length} steps, milliseconds")
        print(", ".join(f"{name} {measured['hessian']:.1f}" for name, measured in found.items()) + "\n")
        if "jax compiled" in found:
            ratio = found["unspool"]["hessian"] / found["jax compiled"]["hessian"]
            bars.append(Bar("Hessian of a hidden Markov model, over JAX compiled", ratio, 1.5, "×"))
    if options.json:
        harness.write(options.json, PACKAGES.values(), numbers)
    for bound in bounds:
        print(f"Out of reach of any batch by this BLAS: {bound}")
    return 0 if quick else harness.decide(bars)


if __name__ == "__main__":
    sys.exit(main())
