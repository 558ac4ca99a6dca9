"""unspool."""
# Draft face: replaced by the explicit one when all modules are there.
from unspool import errors
from unspool._tensor import Tensor
from unspool._dims import dims, Dim
from unspool._ops.leaf import tensor, constant, placeholder
from unspool._ops.broadcasting import broadcast_shapes
import importlib as _il, pkgutil as _pu
import unspool._ops as _ops
_skip = set("Any Callable Sequence TYPE_CHECKING annotations np".split())
for _m in _pu.iter_modules(_ops.__path__):
    _mod = _il.import_module("unspool._ops." + _m.name)
    for _k, _v in list(vars(_mod).items()):
        if not _k.startswith("_") and _k not in _skip and callable(_v) and not isinstance(_v, type) and getattr(_v, "__module__", "").startswith("unspool") and _k not in globals():
            globals()[_k] = _v
for _name in ("linalg", "random", "debug", "testing"):
    try:
        globals()[_name] = _il.import_module("unspool." + _name)
    except ImportError:
        pass
for _name, _keys in (("functional", "grad value_and_grad vjp jvp linearize hvp jacobian hessian jacfwd jacrev"), ("custom", "stop_gradient custom_vjp custom_jvp op"), ("check", "check_grad"), ("tape", "Tape")):
    try:
        _mod = _il.import_module("unspool._autodiff." + _name)
    except ImportError:
        continue
    for _k in _keys.split():
        if hasattr(_mod, _k):
            globals()[_k] = getattr(_mod, _k)
def eval(*trees, bindings=None):
    import optree
    from unspool._engine.engine import default_engine
    leaves, spec = optree.tree_flatten(trees)
    out = optree.tree_unflatten(spec, default_engine().evaluate([Tensor_ if isinstance(Tensor_, Tensor) else tensor(Tensor_) for Tensor_ in leaves], bindings))
    return out[0] if len(trees) == 1 else out
