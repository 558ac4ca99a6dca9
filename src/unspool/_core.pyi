from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextvars import Context, ContextVar
from types import CellType, CodeType, FrameType
from typing import Any, Self, TypeVar
from weakref import ref

import numpy as np

from unspool._autodiff.sweeps.placing import Placed, Wired
from unspool._dims import Shape
from unspool._engine.backends.base import Run
from unspool._engine.folding.fold_queue import FoldQueue
from unspool._engine.folding.matching import Site
from unspool._engine.memory.ledger import Ledger
from unspool._engine.memory.replayed_values import Buffer
from unspool._engine.plan import Plan
from unspool._locks import RLock
from unspool._ops.op import Op
from unspool._saving.codec import Word
from unspool._tensor import Tensor

_N = TypeVar("_N", bound=Node)

Place = tuple[CodeType, int]

class OpBase:
    canonical: Callable[..., Tensor | None] | None
    canonical_for: int
    commuting: frozenset[Any]
    infer: Callable[..., Any]
    inferred: dict[Any, Any] | None
    result_dtypes: Mapping[Any, Any]
    sized: tuple[str, ...]
    is_lasting: bool

class Origin:
    code: CodeType | None
    lasti: int

class Node:
    op: Op
    inputs: tuple[Node, ...]
    attributes: Mapping[str, Any]
    shape: Shape
    dtype: np.dtype[Any]
    id: int
    key: Any
    value: Any
    code: CodeType
    lasti: int
    is_again: int
    @property
    def line(self) -> int: ...
    piece: Any
    output: int
    _name: str

class Bundle(Node): ...

class Call(Bundle):
    plan: Plan
    origins: tuple[Place, ...]
    depth: int
    @property
    def handles(self) -> list[Tensor | None]: ...
    def handle(self, index: int, /) -> Tensor | None: ...

class Piece:
    site: Site
    inputs: tuple[Node, ...]
    outputs: list[ref[Node]]
    residuals: tuple[Any, ...]
    slab: Slab | None
    newest: int
    row: Row | None
    depth: int
    is_loose: bool

class Row:
    @property
    def depth(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    def whole(self) -> Row: ...

class CountersBase:
    calls: int
    chains: int
    derivatives: int
    evaluations: int
    fragments: int
    kernel_calls: int
    plan_hits: int
    plan_misses: int
    slabs_dropped: int

class LedgerBase:
    noted: int
    ceiling: int
    peak: int
    steps: int
    kernels: int
    is_strict: bool
    is_tracking: bool
    lock: RLock
    timeline: list[tuple[float, int]] | None
    arrived: list[Any]
    crowd: int
    held: dict[int, Held]
    newest_call: ref[Call] | None
    def note_peak(self, nbytes: int, /) -> None: ...
    def note_folded(self, call: Call, slab: Slab, /) -> None: ...

class Held:
    @property
    def node(self) -> ref[Node]: ...
    @property
    def nbytes(self) -> int: ...
    made: int
    last: int
    def is_alive(self) -> bool: ...
    def is_referenced(self, known: int = ..., /) -> bool: ...

class Slab:
    def __init__(self, step: Call | Piece, /) -> None: ...
    @property
    def identity(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def is_there(self) -> bool: ...
    def add_to(self, found: dict[int, int], /) -> bool: ...
    def drop(self, find_kept: Callable[[Any], frozenset[int]], keep: Any, tiny: int, /) -> int: ...
    def drop_unread(
        self, read: Container[int], find_kept: Callable[[Any], frozenset[int]], keep: Any, tiny: int, /
    ) -> int: ...

def hold(held: dict[int, Held], nodes: list[Any], count: int, made: int, least: int, /) -> set[int]: ...
def note_reads(held: dict[int, Held], operands: Sequence[Node | int], now: int, times: int, /) -> None: ...
def live_entries(held: dict[int, Held], /) -> list[Held]: ...
def stretches(
    held: dict[int, Held],
    first: int,
    newest: int,
    young: int,
    latest: set[int],
    references: Mapping[int, int] | None,
    keep: Any,
    /,
) -> tuple[list[Held], bytearray, bytearray, bytearray]: ...
def held_after(
    held: dict[int, Held],
    identity: int,
    waited_for: Container[int],
    latest: set[int],
    uses: tuple[dict[int, int], ...] | None,
    keep: Any,
    /,
) -> list[Held]: ...
def release(held: dict[int, Held], entries: list[Held], /) -> tuple[int, int]: ...
def add_values(found: dict[int, int], held: dict[int, Held], /) -> None: ...
def piece_bytes(piece: Piece, /) -> int: ...
def references_of(
    pieces: Sequence[Piece], count: Callable[[Any, tuple[bool, ...]], list[int]], /
) -> dict[int, int]: ...

class Bounds:
    @property
    def length(self) -> int: ...
    @property
    def newest(self) -> int: ...
    def note(self, length: int, id: int, /) -> None: ...

class ValuesBase:
    @property
    def nbytes(self) -> int: ...
    def __contains__(self, key: int, /) -> bool: ...
    def of(self, nodes: Sequence[Node], /) -> list[Any]: ...
    def get(self, key: int, /) -> Any: ...
    def is_wanted(self, key: int, more: int = ..., /) -> bool: ...
    def put(self, key: int, value: Any, buffers: tuple[Buffer, ...], /) -> None: ...
    def buffers(self, key: int, /) -> tuple[Buffer, ...] | None: ...
    def are_own(self, buffers: tuple[Buffer, ...], /) -> bool: ...
    def replace(self, key: int, value: Any, gone: tuple[Buffer, ...], /) -> None: ...
    def add_reason(self, key: int, /) -> None: ...
    def drop_reason(self, key: int, /) -> None: ...
    def nbytes_of(self, keys: Iterable[int], /) -> int: ...

class FrameBase:
    def __new__(cls, order: list[Node], *args: Any) -> Self: ...
    order: list[Node]
    uses: dict[int, int]
    live: set[int]
    taped: set[int]
    pinned: list[int]
    ahead: list[int]
    recent: list[int]
    saves: set[int]
    position: int
    tape_from: int
    def leave(self, values: ValuesBase, operands: Sequence[Node], /) -> None: ...
    def run_on(
        self,
        above: FrameBase | None,
        values: ValuesBase,
        targets: dict[int, Node],
        ledger: LedgerBase,
        beside: int,
        limit: int,
        due: int,
        ran: set[int] | None,
        owned: Callable[[Any], Any],
        tiny: int,
        /,
    ) -> tuple[int, int]: ...

def count_uses(uses: dict[int, int], order: list[Node], /) -> None: ...

class LevelTable:
    def __init__(
        self, targets: dict[int, Node], is_literal: Callable[[Node], bool], begun: Sequence[int], /
    ) -> None: ...
    def of(self, unit: Node, /) -> int: ...
    def divide(self, begun: Sequence[int], /) -> None: ...
    def collect(
        self,
        stack: list[Node],
        level: int,
        found: dict[int, Node],
        known: Container[int],
        most: int,
        values: ValuesBase,
        on_disk: Callable[[Node], Any] | None,
        /,
    ) -> bool: ...
    def below(self, order: list[Node], /) -> dict[int, dict[int, Node]]: ...

class UnitTable:
    def __init__(self, branch: int, /) -> None: ...
    def buffer(self, size: int, /) -> int: ...
    def unit(self) -> int: ...
    def node(self, id: int, maker: int, has_inputs: bool, buffers: Sequence[int], /) -> int: ...
    def describe(
        self,
        unit: int,
        id: int,
        reads: Sequence[int],
        makes: Sequence[int],
        begun: int,
        fixed: int,
        workspace: int,
        stacked: int,
        spare: int,
        taken: int,
        flags: int,
        /,
    ) -> None: ...
    def numbers(
        self,
        given: Sequence[Node],
        units: dict[int, int],
        nodes: dict[int, int],
        buffers: dict[tuple[int, int], int],
        kernels: dict[int, int],
        describe: Callable[[Node], int],
        describe_node: Callable[[Node], int],
        /,
    ) -> list[int]: ...
    def node_numbers(
        self,
        given: Sequence[Node],
        units: dict[int, int],
        nodes: dict[int, int],
        buffers: dict[tuple[int, int], int],
        kernels: dict[int, int],
        describe: Callable[[Node], int],
        describe_node: Callable[[Node], int],
        /,
    ) -> list[int]: ...
    def arrange(self, units: Sequence[int], how: int, /) -> list[int]: ...
    def widths(self, units: Sequence[int], wanted: Sequence[int], /) -> tuple[int, int]: ...
    def need(self, units: Sequence[int], uses: dict[int, int], /) -> tuple[int, int, list[int], list[int]]: ...

def unit_of(node: Node, /) -> Node: ...

class Matcher: ...
class Privacy: ...

class PlanBase:
    id: int
    output_shapes: tuple[Any, ...]
    output_dtypes: tuple[Any, ...]
    run: Run
    is_simple: bool
    seconds: float
    def note_time(self, seconds: float, /) -> None: ...

class SiteBase:
    plan: Plan
    match: Matcher | None
    length: int
    nbytes: int
    peak: int
    kernels: int
    is_ready: bool
    is_large: bool
    has_bundles: bool
    @property
    def origins(self) -> tuple[Place, ...]: ...
    @property
    def checks(self) -> dict[tuple[int, ...], Privacy]: ...
    @property
    def results(self) -> int: ...
    def describe(self, results: int, origins: tuple[Place, ...], apart_results: frozenset[int], /) -> None: ...

class QueueBase:
    ledger: Ledger
    most: int
    after: int
    crowd: int
    many_nodes: int
    fewest_long: int
    families: dict[tuple[int, int], None]
    def __len__(self) -> int: ...
    def add(
        self, site: Site, inputs: tuple[Node, ...], outputs: tuple[Node, ...], residuals: tuple[Any, ...], /
    ) -> None: ...
    def add_loose(self, piece: Piece, /) -> None: ...
    def place(self, piece: Piece, /) -> None: ...
    def enter(self, piece: Piece, /) -> None: ...
    def leave(self, piece: Piece, /) -> None: ...
    def alive(self) -> list[Piece]: ...
    def clear(self) -> None: ...
    def pad(self, count: int, /) -> None: ...
    def will_fold(self, piece: Piece, /) -> bool: ...
    def fold_row(self, row: Row, depth: int, /) -> None: ...
    def fold_chosen(self, choose: Callable[[Piece], bool] | None, most: int | None, /) -> None: ...
    def fold_one(self, piece: Piece, /) -> None: ...

class Runner:
    def run(self, targets: Sequence[Node], /) -> bool: ...

class Journal:
    out: bytearray
    unfolded: dict[int, ref[Node]]
    unevaluated: dict[int, ref[Node]]
    leaves: list[Node]
    last_id: int
    last_depth: int
    next: int
    offset: int
    adopted: int
    encoder: EncoderBase | None
    on_new: Callable[[Call], None] | None
    def __len__(self) -> int: ...
    def __getitem__(self, id: int, /) -> int: ...
    def get(self, id: int, /) -> int | None: ...
    def enter(self, id: int, number: int, /) -> None: ...
    def collect(self, roots: list[Node], /) -> tuple[list[Node], bool]: ...
    def put_known(self, nodes: list[Node], start: int, before: int, /) -> int: ...
    def put_entry(self, payload: bytes, /) -> None: ...
    def put_inputs(self, kind: int, inputs: tuple[Node, ...], /) -> None: ...
    def adopt_inputs(self, kind: int, numbers: tuple[int, ...], /) -> None: ...
    def take_evaluated(self) -> list[Node]: ...
    def take_folded(self) -> list[Node]: ...
    def put_values(self, nodes: list[Node], most: int, /) -> list[Node]: ...

class EncoderBase:
    words: dict[type, Word]
    known: dict[Any, tuple[int, Any]]
    write: Callable[[bytes], None]
    references: list[tuple[bytearray, int, int, tuple[Word, Any, Any]]] | None
    journal: Journal | None
    position: Callable[[Any, int], Any] | None
    def put(self, out: bytearray, value: Any, /) -> None: ...
    def put_parts(self, out: bytearray, word: Word, value: Any, /) -> None: ...
    def adopt(self, payload: bytes, /) -> None: ...
    def entry_of(self, value: Any, /) -> int: ...
    def entry_of_bytes(self, payload: bytes, /) -> int: ...

def memory_of(array: Any, /) -> tuple[int, tuple[int, ...]]: ...
def position_key(position: tuple[Any, int], /) -> tuple[int, int]: ...

class Step:
    plan: Plan
    @property
    def inputs(self) -> tuple[Tensor | Pending, ...]: ...
    read: tuple[int, ...]
    made: tuple[int, ...]
    wanted: tuple[int, ...]
    placed: Placed | None
    number: int
    position: int
    def output(self, index: int, /) -> Pending: ...

class Pending:
    step: Step
    index: int
    @property
    def shape(self) -> Any: ...
    def keep(self) -> Self: ...

class Note:
    def apply(self, call: Call, arriving: list[Any], arrived: dict[int, Any], /) -> None: ...

class Sources:
    def __len__(self) -> int: ...

class CallSweep:
    def pull(self, order: list[Node], floor: int, /) -> tuple[Any, ...] | None: ...

class TensorBase(Node):
    def __float__(self) -> float: ...
    def __add__(self, other: Any, /) -> Tensor: ...
    def __radd__(self, other: Any, /) -> Tensor: ...
    def __sub__(self, other: Any, /) -> Tensor: ...
    def __rsub__(self, other: Any, /) -> Tensor: ...
    def __mul__(self, other: Any, /) -> Tensor: ...
    def __rmul__(self, other: Any, /) -> Tensor: ...
    def __truediv__(self, other: Any, /) -> Tensor: ...
    def __rtruediv__(self, other: Any, /) -> Tensor: ...
    def __matmul__(self, other: Any, /) -> Tensor: ...
    def __rmatmul__(self, other: Any, /) -> Tensor: ...
    def __getitem__(self, index: Any, /) -> Tensor: ...
    def __array_ufunc__(self, ufunc: Any, method: str, /, *inputs: Any, **kwargs: Any) -> Any: ...

class UpdateBase:
    _tensor: Tensor
    _base: Tensor
    _index: tuple[Any, ...]
    _lengths: Shape
    _at: tuple[Tensor, ...]
    _shape: Shape
    def __init__(
        self,
        tensor: Tensor,
        base: Tensor,
        index: tuple[Any, ...],
        lengths: Shape,
        at: tuple[Tensor, ...],
        shape: Shape,
        /,
    ) -> None: ...

class UpdaterBase:
    _tensor: Tensor
    def __init__(self, tensor: Tensor, /) -> None: ...
    def __getitem__(self, index: Any, /) -> Any: ...

def bind(
    *,
    tensor_class: type[Node] = ...,
    no_params: Mapping[str, Any] = ...,
    is_internal: dict[str, bool] = ...,
    origin: ContextVar[Origin | None] = ...,
    with_sizes: Callable[..., Mapping[str, Any]] = ...,
    align: Callable[..., tuple[tuple[Tensor, ...], Shape]] = ...,
    constant: Op = ...,
    seed: str = ...,
    float32: np.dtype[Any] = ...,
    float64: np.dtype[Any] = ...,
    complex128: np.dtype[Any] = ...,
    int64: np.dtype[Any] = ...,
    dtypes: tuple[np.dtype[Any], ...] = ...,
    can_count: bool = ...,
    array_class: type[np.ndarray[Any, Any]] = ...,
    numpy_float: type[np.float64] = ...,
    numpy_integer: type[np.int64] = ...,
    slice: Op = ...,
    gather: Op = ...,
    reshape: Op = ...,
    broadcast_to: Op = ...,
    concat: Op = ...,
    update_class: type[UpdateBase] = ...,
    general_update: Callable[[Tensor, Any], UpdateBase] = ...,
    call: Op = ...,
    projection: type[Node] = ...,
    lost: Any = ...,
    plain_output: Callable[[Call, int], Tensor] = ...,
    leaves: frozenset[Op] = ...,
    counters: CountersBase = ...,
    runner: Runner = ...,
    watched: ContextVar[Any] = ...,
    general_float: Callable[[Any], float] = ...,
    general_ufunc: Callable[..., Any] = ...,
    general_item: Callable[[Any, Any], Tensor] = ...,
    as_tensor: Callable[[Any], Tensor] = ...,
    as_inexact: Callable[[Any], Tensor] = ...,
    computes_with_values: Callable[[FrameType], bool] = ...,
    bounds: Bounds = ...,
) -> None: ...
def bind_operator(name: str, op: Op | None, general: Callable[[Any, Any], Tensor] | None, /) -> None: ...
def bind_products(forms: Sequence[tuple[dict[str, Any], tuple[Any, ...]]], /) -> None: ...
def bind_ufuncs(names: dict[Any, str], /) -> None: ...
def apply(op: Op, /, *inputs: Node, **params: Any) -> Tensor: ...
def apply_multi(op: Op, /, *inputs: Node, **params: Any) -> Bundle: ...
def parts(op: Op, bundle: Bundle, /) -> tuple[Tensor, ...]: ...
def are_known(*values: Any) -> bool: ...
def concat(arrays: Any, axis: Any, /) -> Tensor | None: ...
def pick(x: Node, index: Any, /) -> Tensor | None: ...
def plain_index(x: Node, index: Any, /) -> tuple[tuple[Any, ...], tuple[int, ...], tuple[Tensor, ...]] | None: ...
def constant(dtype: np.dtype[Any], shape: tuple[int, ...], content: object, data: bytes, /) -> Tensor: ...
def constant_beside(value: Any, dtype: np.dtype[Any], /) -> Tensor | None: ...
def record(op: Op, x1: Node, x2: Node, /) -> Tensor: ...
def operands(x1: Any, x2: Any, /) -> tuple[Tensor, Tensor] | None: ...
def reduce(op: Op, x: Any, axis: Any, keepdims: Any, /) -> Tensor | None: ...
def reshape(x: Any, shape: Any, /) -> Tensor | None: ...
def stack(arrays: Any, axis: Any, /) -> Tensor | None: ...
def combine_at(op: Op, slice_op: Op, update: UpdateBase, values: Any, /) -> Tensor | None: ...
def fitted(update: UpdateBase, values: Any, /) -> Tensor | None: ...
def selected(update: UpdateBase, /) -> Tensor | None: ...
def update_at(slice_op: Op, scatter_op: Op, update: UpdateBase, values: Any, /) -> Tensor | None: ...
def record_beside(op: Op, x1: Any, x2: Any, /) -> Tensor | None: ...
def unary(op: Op, x: Any, /) -> Tensor: ...
def unary_inexact(op: Op, x: Any, /) -> Tensor: ...
def find(op: Op, inputs: tuple[Node, ...], key: Any, /) -> Node | None: ...
def intern(
    op: Op, inputs: tuple[Node, ...], params: Mapping[str, Any], shape: Any, dtype: Any, key: Any, /
) -> Tensor: ...
def new(
    cls: type[_N],
    op: Op,
    inputs: tuple[Node, ...] | Node,
    params: Mapping[str, Any],
    shape: Any,
    dtype: Any,
    key: Any,
    code: CodeType,
    lasti: int,
    id: int | None = None,
    /,
) -> _N: ...
def enter(node: _N, /) -> _N: ...
def leave(node: Node, /) -> None: ...
def call(plan: Plan, inputs: tuple[Node, ...], origins: tuple[Place, ...], place: Place, /) -> Call: ...
def output(call: Call, index: int, /) -> Tensor: ...
def fold(
    plan: Plan,
    inputs: tuple[Node, ...],
    origins: tuple[Place, ...],
    id: int,
    depth: int,
    residuals: tuple[Any, ...],
    indices: tuple[int, ...],
    tensors: list[Node],
    /,
) -> Call | None: ...
def piece(site: Site, inputs: tuple[Node, ...], outputs: tuple[Node, ...], residuals: tuple[Any, ...], /) -> Piece: ...
def measure_piece(piece: Piece, /) -> None: ...
def record_again(
    order: list[Node],
    images: dict[int, Node],
    marks: list[int],
    cross: Callable[[], None],
    image_of: Callable[[Node, tuple[Any, ...]], Node],
    has_dropped: bool,
    /,
) -> list[Node]: ...
def younger_than(
    first: int, nodes: list[Node], known: dict[int, Any], in_order: Callable[[list[Node]], list[Node]], /
) -> list[Node]: ...
def are_simple(op: OpBase, params: Mapping[str, Any], /) -> bool: ...
def line_key(targets: Sequence[Node], /) -> int: ...
def find_site(
    lines: dict[int, list[Site]], targets: Sequence[Node], /
) -> tuple[Site, tuple[Node, ...], tuple[Node, ...], tuple[Any, ...]] | None: ...
def privacy(
    first: int,
    slots: int,
    shown: tuple[int, ...],
    steps: list[tuple[int, int, tuple[int, ...], tuple[int, ...]]],
    /,
) -> Privacy: ...
def runner(
    lines: dict[int, list[Site]],
    ledger: LedgerBase,
    queue: FoldQueue,
    observer: ContextVar[Any],
    is_quiet: ContextVar[bool],
    quiet: Callable[[], Context],
    /,
) -> Runner: ...
def value_now(tensor: Node, /) -> Any: ...
def step(plan: Plan, inputs: list[Any], /) -> Step: ...
def runs(last: Step, longest: int, /) -> list[tuple[list[Step], bytes, tuple[Wired, ...]]]: ...
def ends(
    run: list[Step], which: bytes, kinds: tuple[Wired, ...], /
) -> tuple[dict[int, Any], list[set[int]], list[set[int]]]: ...
def shared(run: list[Step], /) -> tuple[bool, ...]: ...
def read_by_each(
    run: list[Step], positions: tuple[int, ...], as_tensor: Callable[[Any], Tensor], /
) -> list[Tensor]: ...
def longest_pick(terms: list[Any], /) -> int: ...
def run_of_terms(terms: list[Any], start: int, /) -> tuple[bool, int]: ...
def row_table(outputs: list[Pending], /) -> tuple[list[Pending], bytes, bytes]: ...
def part_terms(
    terms: list[Any], factored: type[Any], read: Callable[[Any], Any], /
) -> tuple[bytes, list[tuple[Any, list[Any], bytes]]]: ...
def settle(run: list[Step], placed: Placed, /) -> None: ...
def note(
    plan: Plan,
    outputs: int,
    sources: tuple[tuple[str, Any], ...],
    read: tuple[int, ...],
    forms: tuple[tuple[Any, ...] | None, ...],
    factored: type[Any],
    sum: type[Any],
    merge: Callable[[Any, Any], Any],
    output: Callable[[Call, int], Tensor],
    /,
) -> Note: ...
def call_sweep(
    shown: dict[int, Tensor | tuple[Tensor, ...]],
    arrived: dict[int, Any],
    wanted: set[int],
    found: dict[int, Any],
    active: set[int],
    recurs: dict[Any, list[int]],
    passing_inputs: Callable[[Plan], tuple[int, ...]],
    form_of: Callable[[Any], Any],
    sum: type[Any],
    factored: type[Any],
    /,
) -> CallSweep: ...
def current_origin() -> tuple[CodeType, int]: ...
def next_id() -> int: ...
def all_hold(
    missing: object,
    names: tuple[tuple[Any, str, Any], ...],
    functions: tuple[tuple[Any, Any, Any, Any], ...],
    cells: tuple[tuple[CellType, Any], ...],
    classes: tuple[tuple[Any, type, Any], ...],
    /,
) -> bool: ...
def count() -> int: ...
def nodes() -> list[Node]: ...
def reach(
    outputs: list[Node],
    first: int,
    single: Node | None,
    through_all: set[Op],
    shown: dict[int, Tensor | tuple[Tensor, ...]],
    passing_inputs: Callable[[Plan], tuple[int, ...]],
    operands_of: Callable[[Node], Sequence[Node]],
    is_differentiable: Callable[[Node], bool],
    is_open: Callable[[Node], bool] | None,
    /,
) -> Sources: ...
def activate(
    sources: Sources,
    active: set[int],
    shown: dict[int, Tensor | tuple[Tensor, ...]],
    inputs_behind: Callable[[Plan], tuple[tuple[int, ...], ...]],
    /,
) -> list[Node]: ...
def wiring(order: list[Node], /) -> tuple[bytes, bytes, bytes, list[Node], list[tuple[Any, ...]]]: ...
def has_pending(nodes: list[Node], first: int, most: int, /) -> bool: ...
def recurring(order: list[Node], /) -> dict[Any, list[int]]: ...
def pending_nodes(
    order: list[Node],
    uses: dict[int, int],
    bundles: list[Node],
    lent: list[Node],
    bound: Container[int] | None,
    take: Callable[[Node], bool],
    stops: bool,
    /,
) -> tuple[bool, bool, bool]: ...
def run_nodes(
    order: list[Node],
    uses: dict[int, int],
    targets: set[int],
    values: dict[int, Any],
    can_count: bool,
    apply: Callable[[Node, list[Any]], Any] | None,
    call: Callable[[Any, list[Any]], Any],
    hooks: tuple[Any, ...],
    /,
) -> None: ...

class SweepRecord:
    def repeat(
        self, nodes: tuple[Node, ...], most: int, newest: int, begin_level: Callable[[], None], /
    ) -> list[Tensor | None] | None: ...

def sweep_record(
    slots: int,
    outputs: tuple[int, ...],
    variables: tuple[int, ...],
    compared: list[tuple[Any, ...]],
    boundary: list[tuple[Any, ...]],
    constants: tuple[Node, ...],
    recorded: list[tuple[Any, ...]],
    results: tuple[int, ...],
    alias: Op,
    /,
) -> SweepRecord: ...
def matcher(
    slots: int,
    targets: tuple[int, ...],
    steps: list[tuple[Any, ...]],
    inputs: list[tuple[Any, ...]],
    outputs: tuple[int, ...],
    find_part: Callable[[Node, int], Node | None],
    leaves: tuple[Any, ...],
    /,
) -> Matcher: ...
