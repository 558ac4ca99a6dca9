"""The pictures of the recipes, one function each: it takes the names of the page's program and returns a figure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import linprog

import unspool as us

BLUE, ORANGE, GREEN, RED, GREY = "#2563a8", "#d9772b", "#2f8f5b", "#b3364b", "#777777"
Names = dict[str, Any]


def panels(*titles: str, width: float = 4.3) -> tuple[Figure, list[Any]]:
    """Return a figure with a row of axes, one for each title."""
    figure = Figure(figsize=(width * len(titles), 3.6), layout="constrained")
    found = list(np.ravel(figure.subplots(1, len(titles))))
    for axes, title in zip(found, titles, strict=True):
        axes.set_title(title, fontsize=11)
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, found


def legend(*all_axes: Any) -> None:
    """Add legends that do not hide much."""
    for axes in all_axes:
        axes.legend(fontsize=8, framealpha=0.9, edgecolor="none")


def image(figure: Figure, axes: Any, values: Any, **options: Any) -> None:
    """Show a matrix as an image with its scale."""
    axes.grid(visible=False)
    figure.colorbar(axes.imshow(values, **options), ax=axes, shrink=0.85)


def hypergradients(page: Names) -> Figure:
    """Training, the gradient in each rate, and what descending along it does."""
    figure, (left, middle, right) = panels("Training", "Gradient in each rate", "Descending along it")
    training, validation, batches = page["training"], page["validation"], page["batches"]
    logistic, train = page["logistic"], page["train_traced"]
    for data, name, colour in ((training, "training", BLUE), (validation, "validation", ORANGE)):
        ends = np.unique(np.geomspace(1, 2000, 40).astype(int))
        losses = [float(logistic(train(page["rates"], page["decay"], training, batches[:end]), data)) for end in ends]
        left.semilogx(ends, losses, color=colour, label=name)
    left.set(xlabel="step", ylabel="loss")
    for sign, colour, name in ((1, RED, "too long"), (-1, GREEN, "too short")):
        steps = np.flatnonzero(sign * page["by_rate"] > 0)
        middle.semilogy(steps, abs(page["by_rate"][steps]), ".", color=colour, markersize=2, label=name)
    middle.set(xlabel="step k", ylabel="|d validation loss / d rate of step k|", ylim=(1e-9, 0.1))
    log_rates, log_decay, seen = np.log(np.full(2000, 0.01)), np.log(0.01), []
    for _ in range(25):
        rates, decay = us.tensor(np.exp(log_rates)), us.tensor(np.exp(log_decay))
        loss = logistic(train(rates, decay, training, batches), validation)
        by_rate, by_decay = us.eval(loss.grad((rates, decay)))
        seen.append(float(loss))
        smooth = np.convolve(by_rate * rates.eval(), np.ones(101), "same")
        log_rates = log_rates - 4.0 * smooth
        log_decay = log_decay - 40.0 * by_decay * decay.eval()
    right.plot(seen, "o-", color=BLUE, markersize=3)
    right.set(xlabel="trainings", ylabel="validation loss")
    legend(left, middle)
    return figure


def ode(page: Names) -> Figure:
    """A solution with its steps, how sensitivities converge, and a spiral learned."""
    figure, (left, middle, right) = panels("Hares and lynxes", "Error of the gradient", "A neural one")
    fine = page["solve"](page["hunting"](page["p"]), us.tensor([10.0, 5.0]), np.linspace(0, 30, 301)).eval()
    taken: list[Any] = []
    page["solve"](
        page["hunting"](page["p"]), us.tensor([10.0, 5.0]), [0.0, 30.0], note=lambda *step: taken.append(step)
    )
    left.plot(np.linspace(0.1, 30, 300), fine[:, 0], color=BLUE, label="hares")
    left.plot(np.linspace(0.1, 30, 300), fine[:, 1], color=ORANGE, label="lynxes")
    for accepted, colour, name in ((True, GREY, "step"), (False, RED, "rejected")):
        times = [t for t, _, fine_enough in taken if fine_enough is accepted]
        left.plot(times, np.full(len(times), -1.5 if accepted else -3.0), "|", color=colour, markersize=7, label=name)
    left.set(xlabel="t")
    exact = page["exact"][2:].reshape(2, 4).sum(axis=0)
    tolerances = 10.0 ** -np.arange(3, 11)
    errors = []
    for tolerance in tolerances:
        y = page["solve"](page["hunting"](page["p"]), us.tensor([10.0, 5.0]), [0.0, 30.0], rtol=tolerance)
        errors.append(np.abs(us.sum(y[-1]).grad(page["p"]).eval() / exact - 1).max())
    middle.loglog(tolerances, errors, "o-", color=GREEN)
    middle.set(xlabel="tolerance of a step", ylabel="largest relative error")
    fitted = page["fit"](page["start"](8), [4, 8, 12, 16, 20], steps=40)
    dense = page["times"][0], *np.linspace(0.02, 6.0, 300)
    for f, style in (
        (page["network"](fitted), {"color": BLUE, "label": "network"}),
        (lambda y: page["turn"] @ y, {"color": GREY, "ls": "--", "label": "spiral"}),
    ):
        right.plot(*page["solve"](f, us.tensor([2.0, 0.0]), dense, rtol=1e-4).eval().T, linewidth=1, **style)
    right.plot(*page["spiral"].T, "o", color=ORANGE, markersize=4, label="data")
    right.set_aspect("equal")
    legend(left, right)
    return figure


def filters(page: Names) -> Figure:
    """What the filter believes, the likelihood with its ellipse, and expected transitions."""
    figure, (left, middle, right) = panels("Kalman filter", "Likelihood, and its Hessian", "Hidden Markov model")
    series, best = page["longer"], page["best"].x
    m, P, (level, slope, noise) = np.zeros(2), 10 * np.eye(2), np.exp(best)
    F, H, means, widths = page["F"], page["H"], [], []
    for y in series:
        S = H @ P @ H + noise
        gain = P @ H / S
        m, P = m + gain * (y - H @ m), P - np.outer(gain, gain) * S
        means.append(m[0])
        widths.append(np.sqrt(P[0, 0]))
        m, P = F @ m, F @ P @ F.T + np.diag([level, slope])
    means, widths = np.array(means), np.array(widths)
    left.plot(series, ".", color=GREY, markersize=4, label="measured")
    left.plot(means, color=BLUE, linewidth=1, label="level")
    left.fill_between(range(len(series)), means - 2 * widths, means + 2 * widths, color=BLUE, alpha=0.2, linewidth=0)
    left.set(xlabel="time", xlim=(30, 80), ylim=(-32, 18))
    bars = page["bars"]
    x, y = (np.linspace(best[i] - 3 * bars[i], best[i] + 3 * bars[i], 25) for i in (1, 2))
    values = np.array([[float(page["quick"](np.array([best[0], a, b]), series)) for a in x] for b in y])
    middle.contourf(x, y, values - values.min(), levels=[0, 0.5, 1, 2, 4, 8, 16, 32], cmap="Blues_r")
    hessian = us.hessian(page["quick"])(best, series).eval()[1:, 1:]
    angle = np.linspace(0, 2 * np.pi, 100)
    ellipse = np.linalg.solve(np.linalg.cholesky(hessian).T, np.stack([np.cos(angle), np.sin(angle)]))
    middle.plot(best[1] + ellipse[0], best[2] + ellipse[1], color=ORANGE, label="one standard error")
    middle.plot(*np.log([0.04, 1.0]), "k+", label="made with")
    middle.set(xlabel="log variance of the slope", ylabel="log variance of the noise")
    counts = page["expected_transitions"](np.exp(page["first"]), np.exp(page["second"]), page["seen"])
    right.bar(range(9), page["counts"].ravel(), color=BLUE, width=0.6, label="gradient")
    right.plot(range(9), counts.ravel(), "o", color=ORANGE, markersize=5, label="Baum–Welch")
    right.set_xticks(range(9), [f"{i}→{j}" for i in range(3) for j in range(3)], fontsize=7)
    right.set(ylabel="expected transitions")
    legend(left, middle, right)
    return figure


def scf(page: Names) -> Figure:
    """How mixing converges, the density, and its response."""
    figure, (left, middle, right) = panels("Convergence", "Density", "Response of the density")
    hopping, v = -(np.eye(12, k=1) + np.eye(12, k=-1)), page["v"].eval()
    for share, name, colour in ((1.0, "plain steps", GREY), (0.5, "half and half", ORANGE)):
        density, sizes = np.full(12, 0.5), []
        for _ in range(60):
            _, orbitals = np.linalg.eigh(hopping + np.diag(v + 2.0 * density))
            new = np.sum(orbitals[:, :6] ** 2, axis=1)
            sizes.append(np.abs(new - density).max())
            density = density + share * (new - density)
        left.semilogy(sizes, color=colour, label=name)
    left.semilogy(page["steps"], "o-", color=BLUE, markersize=3, label="DIIS")
    left.set(xlabel="step", ylabel="largest error", ylim=(1e-12, 2), xlim=(-1, 30))
    middle.bar(range(12), 2 * page["n"], color=BLUE, width=0.6, label="electrons on a site")
    middle.plot(v, "o-", color=ORANGE, markersize=4, label="potential")
    middle.set(xlabel="site", ylim=(-0.9, 1.3))
    most = np.abs(page["response"]).max()
    image(figure, right, page["response"], cmap="RdBu", vmin=-most, vmax=most)
    right.set(xlabel="potential on", ylabel="density of")
    legend(left, middle)
    return figure


def hartree_fock(page: Names) -> Figure:
    """Energies, derivatives, and convergence."""
    figure, (left, middle, right) = panels("H₂ in STO-3G", "Derivatives of full CI", "Four atoms in a row")
    angstrom = np.linspace(0.45, 2.2, 60)
    bohr = angstrom / 0.52917721092
    places = lambda R: us.stack([us.zeros(3), R * us.tensor([0.0, 0.0, 1.0])])  # noqa: E731
    found = np.array([page["derivatives"](R) for R in bohr])
    mean_field = [float(page["self_consistent"](places(us.tensor(R)), [1, 1], 2)[0]) for R in bohr]
    left.plot(angstrom, mean_field, color=ORANGE, label="Hartree–Fock")
    left.plot(angstrom, found[:, 0], color=BLUE, label="full CI")
    left.plot(0.74, -1.1372838344885, "ko", markersize=4, label="published")
    left.set(xlabel="distance in Å", ylabel="energy in hartree")
    for order, colour in ((1, BLUE), (2, GREEN), (3, ORANGE)):
        middle.plot(angstrom, found[:, order], color=colour, label=f"order {order}")
        middle.plot(angstrom[1:-1:2], np.gradient(found[:, order - 1], bohr)[1:-1:2], ".", color="k", markersize=3)
    middle.set(xlabel="distance in Å", ylim=(-2.5, 2.5))
    row = us.tensor([[0.0, 0.0, z] for z in (0.0, 1.4, 3.6, 4.9)])
    for history, name, colour in ((1, "plain steps", GREY), (6, "DIIS", BLUE)):
        sizes: list[float] = []
        page["self_consistent"](row, [1] * 4, 4, history=history, show=lambda _, size, to=sizes: to.append(size))
        right.semilogy(range(1, len(sizes) + 1), sizes, "o-", color=colour, markersize=3, label=name)
    right.set(xlabel="step", ylabel="largest entry of F·D·S − S·D·F")
    legend(left, middle, right)
    return figure


def pde_inverse(page: Names) -> Figure:
    """The plate, what was found, a temperature, and the misfit."""
    figure, axes = panels("Conductivity (log)", "Found from the rim", "Temperature, step 6", "Misfit", width=3.7)
    n = 20
    true, start, records = page["make_plate"](n, 30)
    fields: list[Any] = []
    page["heat"](us.tensor(true), start, records[:6], note=lambda u: fields.append(u.eval()))
    page["start"], page["records"] = start, records
    seen: list[float] = []
    found = us.networks.minimise(
        page["objective"], np.zeros((n, n)), max_steps=60, on_step=lambda k, q, values: seen.append(values["loss"])
    )
    for panel, values in zip(axes, (true, found.state.eval()), strict=False):
        image(figure, panel, values, cmap="viridis", vmin=-1.5, vmax=0.1)
    image(figure, axes[2], fields[-1], cmap="inferno")
    axes[3].semilogy(range(1, len(seen) + 1), seen, color=BLUE)
    axes[3].set(xlabel="step of L-BFGS", ylabel="misfit and smoothing")
    return figure


def wave_inversion(page: Names) -> Figure:
    """The ground, what was found, records, and runs of a step against memory."""
    figure, axes = panels("Speed of sound", "Found from five shots", "Records of a shot", "Runs of a step", width=3.7)
    n, steps = 32, 240
    ground, propagate, pulse = page["ground"], page["propagate"], page["shot"](steps)
    true, shots = ground(n, 0.2), [(2, 4), (2, 10), (2, 16), (2, 22), (2, 28)]
    seen = []
    for source in shots:
        seen.append([])
        quiet = np.zeros((steps, n))
        propagate(us.tensor(true), pulse, quiet, source, note=lambda u, to=seen[-1]: to.append(u[2].eval()))
    found = us.networks.minimise(
        lambda c: sum((propagate(c, pulse, records, at) for records, at in zip(seen, shots, strict=True)), 0.0),
        ground(n, 0.0),
        max_steps=30,
    )
    for panel, values in zip(axes, (true, found.state.eval()), strict=False):
        image(figure, panel, values, cmap="viridis", vmin=0.95, vmax=1.2)
    image(figure, axes[2], np.array(seen[2]), cmap="RdBu", vmin=-0.5, vmax=0.5, aspect="auto")
    axes[2].set(xlabel="geophone", ylabel="step")
    rooms = [20, 24, 32, 48, 64, 100, 150, 250, 500]
    runs = [page["within"](room, page["speed"], page["pulse"], page["records"])[0].evaluations for room in rooms]
    axes[3].semilogx(rooms, np.array([page["revolve"](1000, room) for room in rooms]) / 1000, "--", color=ORANGE)
    axes[3].semilogx(rooms, np.array(runs) / 1000, "o-", color=BLUE, markersize=4)
    axes[3].legend(["Revolve, states alone", "us.memory, everything"], fontsize=8, framealpha=0.9, edgecolor="none")
    axes[3].minorticks_off()
    axes[3].set_xticks([20, 50, 100, 200, 500], ["20", "50", "100", "200", "500"])
    axes[3].set(xlabel="room, in states", ylabel="runs for each step", ylim=(0, None))
    return figure


def pdhg(page: Names) -> Figure:
    """Residuals, prices, and how the plan moves."""
    figure, (left, middle, right) = panels("Convergence", "Prices", "The plan against hours of a machine")
    left.semilogy(*np.array(page["seen"]).T, color=BLUE)
    left.set(xlabel="step", ylabel="residual")
    machines = np.arange(len(page["by_b"]))
    middle.bar(machines, page["by_b"], color=BLUE, width=0.6, label="d profit / d hours")
    middle.plot(machines, -page["known"].ineqlin.marginals, "o", color=ORANGE, label="HiGHS")
    middle.set(xlabel="machine")
    A, b, c = (page[name].eval() for name in "Abc")
    machine = int(page["scarce"][0])
    hours = np.linspace(0.6, 1.5, 60) * b[machine]
    plans = []
    for given in hours:
        limit = b.copy()
        limit[machine] = given
        plans.append(linprog(-c, A_ub=A, b_ub=limit, method="highs").x)
    colours = iter((BLUE, ORANGE, GREEN, RED, GREY))
    for good in np.flatnonzero(np.max(plans, axis=0) > 1e-9):
        colour = next(colours)
        right.plot(hours, np.array(plans)[:, good], color=colour, linewidth=1, label=f"good {good}")
        if good in page["made"]:
            value = float(page["x"][int(good)])
            slope = page["x"][int(good)].grad(page["b"]).eval()[machine]
            near = np.array([-0.12, 0.12]) * b[machine]
            right.plot(b[machine] + near, value + slope * near, color=colour, linewidth=4, alpha=0.4)
    right.set(xlabel=f"hours of machine {machine}", ylabel="amount")
    legend(middle, right)
    return figure


def deep_equilibrium(page: Names) -> Figure:
    """Convergence, the error of gradients, and training."""
    figure, (left, middle, right) = panels("Convergence", "Error of the gradient", "Training")
    model, X, y, layer, loss_of = (page[name] for name in ("model", "X", "y", "layer", "loss_of"))
    left.semilogy(page["changes"], color=GREY, label="plain")
    accelerated = []
    for tol in 10.0 ** -np.arange(1, 13):
        accelerated.append(us.fixed_point(lambda z: layer(z, model, X), us.zeros((20, 16)), tol=tol)[1])
    left.semilogy(accelerated, 10.0 ** -np.arange(1, 13), "o-", color=BLUE, markersize=3, label="Anderson")
    left.set(xlabel="step", ylabel="change")
    counts, errors = range(2, len(page["changes"]), 4), {"through the steps": [], "implicit": []}
    for count in counts:
        z = us.zeros((20, 16))
        for _ in range(count):
            z = layer(z, model, X)
        unrolled = loss_of(z, model, y).grad(model["W"]).eval()
        step = us.Implicit(check=None)
        z, _ = us.iterate(lambda z: layer(z, model, X), us.zeros((20, 16)), max_steps=count, adjoint=step)
        implicit = loss_of(z, model, y).grad(model["W"]).eval()
        for found, to in zip((unrolled, implicit), errors.values(), strict=True):
            to.append(np.abs(found - page["by_W"]).max())
    for (name, values), colour in zip(errors.items(), (ORANGE, BLUE), strict=True):
        middle.semilogy(counts, values, color=colour, label=name)
    middle.set(xlabel="steps before stopping")
    weights, seen = {name: value.eval() for name, value in model.items()}, []
    X, y = page["make_data"](128, 3)

    def fit(w: Any) -> Any:
        z, _ = us.fixed_point(lambda z: layer(z, w, X), us.zeros((20, 128)), tol=1e-9)
        return loss_of(z, w, y) + 1e-4 * sum((us.sum(part**2) for part in w.values()), 0.0)

    us.networks.minimise(fit, weights, max_steps=60, on_step=lambda k, w, values: seen.append(values["loss"]))
    right.semilogy(range(1, len(seen) + 1), seen, color=BLUE)
    right.set(xlabel="step of L-BFGS", ylabel="loss")
    legend(left, middle)
    return figure


def economics(page: Names) -> Figure:
    """The policy, its derivatives, and convergence."""
    figure, (left, middle, right) = panels("Policy", "Its derivatives", "Convergence")
    capital = np.linspace(0.03, 0.4, 50)
    following = page["policy"](page["alpha"], page["beta"])(us.tensor(capital))
    slopes = us.jacobian(lambda p: page["policy"](p[0], p[1])(us.tensor(capital)))(us.tensor([0.33, 0.95])).eval()
    left.plot(capital, following.eval(), color=BLUE, label="k′")
    left.plot(capital[::5], 0.33 * 0.95 * capital[::5] ** 0.33, "o", color=ORANGE, markersize=4, label="αβ k^α")
    left.plot(capital, capital, ":", color=GREY, label="k′ = k")
    left.set(xlabel="capital k")
    exact = 0.95 * capital**0.33 * (1 + 0.33 * np.log(capital)), 0.33 * capital**0.33
    for values, known, name, colour in zip(slopes.T, exact, "αβ", (BLUE, GREEN), strict=True):
        middle.plot(capital, values, color=colour, label=f"dk′/d{name}, through the loop")
        middle.plot(capital[::5], known[::5], "o", color=ORANGE, markersize=4)
    middle.set(xlabel="capital k")
    right.semilogy(page["steps"], color=BLUE)
    right.set(xlabel="step", ylabel="change of the policy")
    legend(left, middle)
    return figure


def ipeps(page: Names) -> Figure:
    """The optimisation, and the spectrum and convergence of the surroundings."""
    figure, (left, middle, right) = panels("Optimisation", "Spectrum of the corner", "Change in a step")
    energy, bond = page["energy_per_site"], page["bond"]
    for chi, colour in ((4, GREY), (8, ORANGE), (16, BLUE)):
        seen: list[float] = []
        found = us.networks.minimise(
            lambda A, chi=chi: energy(A, bond, chi),
            page["start"],
            tol=1e-7,
            on_step=lambda k, A, values, to=seen: to.append(values["loss"]),
        )
        left.semilogy(np.abs(np.array(seen) + 0.66023109348), color=colour, label=f"χ = {chi}")
    left.set(xlabel="step of L-BFGS", ylabel="distance to the published energy")
    C, _ = page["surroundings"](page["symmetric"](found.state), 16)
    spectrum = np.sort(np.abs(np.linalg.eigvalsh(C.eval())))[::-1]
    middle.semilogy(spectrum / spectrum[0], "o", color=BLUE, markersize=4)
    middle.set(xlabel="number", ylabel="weight")
    for state, name, colour in ((us.tensor(page["start"]), "at the start", GREY), (found.state, "at the end", BLUE)):
        changes: list[float] = []
        page["surroundings"](page["symmetric"](state), 16, note=changes.append)
        right.semilogy(range(1, len(changes) + 1), changes, color=colour, label=name)
    right.set(xlabel="step")
    legend(left, right)
    return figure


def symmetric_dmrg(page: Names) -> Figure:
    """Convergence, slopes, and the blocks of a tensor."""
    figure, (left, middle, right) = panels("Energy", "Slope in each coupling", "What is stored")
    errors = np.maximum(np.abs(np.array(page["energies"]) - page["levels"][0]), 1e-15)
    left.semilogy(range(1, len(errors) + 1), errors, "o-", color=BLUE)
    left.set(xlabel="sweep", ylabel="error", xticks=range(1, len(errors) + 1))
    middle.bar(range(1, 8), page["slopes"], color=BLUE, width=0.6, label="through all sweeps")
    middle.plot(range(1, 8), page["correlations"], "o", color=ORANGE, markersize=5, label="⟨S·S⟩")
    middle.set(xlabel="bond", ylim=(-0.85, 0))
    dense = page["A"][4].to_dense().eval()
    right.grid(visible=False)
    right.imshow(np.abs(dense.reshape(dense.shape[0], -1)) > 0, cmap="Blues", aspect="auto", vmax=1.4)
    right.set(xlabel="spin and bond to the right", ylabel="bond to the left")
    legend(middle)
    return figure


def tomorrow(page: Names) -> Figure:
    """The pattern tonight and tomorrow, and where and when more feed gives more."""
    figure, axes = panels("When the job ended", "Tomorrow", "Influence of a place", "Influence of a time", width=3.7)
    n, steps, block, stop = 64, 2000, 100, 1000
    (u, v), (feed, away) = page["drop"](n), page["rates"](n)
    more = us.tensor(np.zeros(steps // block))
    for k in range(steps):
        u, v = page["react"](u, v, feed + more[k // block], away)
        us.eval((u, v))
        if k + 1 == stop:
            image(figure, axes[0], v.eval(), cmap="viridis", vmin=0, vmax=0.42)
    image(figure, axes[1], v.eval(), cmap="viridis", vmin=0, vmax=0.42)
    by_feed, by_time = us.eval(us.sum(v).grad((feed, more)))
    most = np.abs(by_feed).max()
    image(figure, axes[2], by_feed, cmap="RdBu", vmin=-most, vmax=most)
    starts = block * np.arange(len(by_time))
    colours = [ORANGE if start < stop else BLUE for start in starts]
    axes[3].bar(starts, by_time, width=0.8 * block, align="edge", color=colours)
    axes[3].axvline(stop, color=RED, linewidth=1)
    axes[3].set(xlabel="step", ylabel="d amount / d feed in these steps")
    return figure


def phase_diagram(page: Names) -> Figure:
    """The specific heat over both couplings, the steps that loops took, and a cut beside the closed form."""
    figure, (left, middle, right) = panels("Specific heat", "Steps of a loop", "K₁ = K₂")
    count = 20
    points = page["grid"](count)
    found = us.ensemble(page["member"], points, has_aux=True)
    K1 = points["K1"].reshape(count, count)[0]
    half = (K1[1] - K1[0]) / 2
    across = {"origin": "lower", "extent": (K1[0] - half, K1[-1] + half, K1[0] - half, K1[-1] + half)}
    image(figure, left, found.aux["heat"].reshape(count, count), cmap="viridis", **across)
    image(figure, middle, found.aux["steps"].reshape(count, count), cmap="magma", **across)
    line = np.linspace(0.1, 0.9, 200)
    for axes in (left, middle):
        axes.plot(line, 0.5 * np.arcsinh(1 / np.sinh(2 * line)), "--", color="white", linewidth=1.2)
        axes.set(xlabel="K₁", ylabel="K₂", xlim=across["extent"][:2], ylim=across["extent"][:2])
    h, exact = 1e-4, page["exact"]
    heat = [(exact(k * (1 + h), k * (1 + h)) - 2 * exact(k, k) + exact(k * (1 - h), k * (1 - h))) / h**2 for k in line]
    right.plot(line, heat, color=ORANGE, label="Kaufman")
    right.plot(K1, found.aux["heat"].reshape(count, count).diagonal(), "o", color=BLUE, markersize=4, label="the loops")
    right.axvline(0.5 * np.arcsinh(1.0), color=GREY, linestyle=":", label="transition of the plane")
    right.set(xlabel="K₁ = K₂")
    legend(right)
    return figure


PICTURES: dict[str, Callable[[Names], Figure]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        hypergradients,
        ode,
        filters,
        scf,
        hartree_fock,
        pde_inverse,
        wave_inversion,
        pdhg,
        deep_equilibrium,
        economics,
        ipeps,
        symmetric_dmrg,
        tomorrow,
        phase_diagram,
    )
}
