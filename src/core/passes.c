/* Passes: pending nodes that run one after the other, each by the kernel of its op or by the plan of its call.

   What a pass keeps, and why, is said in `unspool._engine.interpreter`; here are the two walks over its nodes. */

#include "evaluation.h"

/* Passes longer than this free intermediate values at their last use, shorter ones when there is a large one: else they
   end before that could matter. */
#define SHORT 32

/* Smaller arrays are not worth freeing early, and sums of them not the check whether they can be done in place. */
#define LARGE (1 << 14)

static PyObject *name_kernel, *name_nbytes, *name_base, *name_fragment, *name_results, *name_inputs;

int
passes_start(void)
{
    name_kernel = PyUnicode_InternFromString("kernel");
    name_nbytes = PyUnicode_InternFromString("nbytes");
    name_base = PyUnicode_InternFromString("base");
    name_fragment = PyUnicode_InternFromString("fragment");
    name_results = PyUnicode_InternFromString("results");
    name_inputs = PyUnicode_InternFromString("inputs");
    return name_kernel && name_nbytes && name_base && name_fragment && name_results && name_inputs ? 0 : -1;
}

static inline int
is_projection(const NodeObject *node)
{
    return (PyObject *)Py_TYPE(node) == projection_class && is_call(node->inputs);
}

/* --- what has to run --- */

typedef struct {
    PyObject *order, *uses, *bundles, *lent;
    PyObject *bound, *take, *one;
    int stops; /* at what has lost its value */
    int has_calls, is_inverted, reads_lost;
} Collection;

/* Add a use of a node to those that are known; 1 if it was not met before, -1 is an error. */
static int
add_use(Collection *work, PyObject *id)
{
    PyObject *before = PyDict_GetItemWithError(work->uses, id);
    if (before == NULL) {
        return PyErr_Occurred() || PyDict_SetItem(work->uses, id, work->one) < 0 ? -1 : 1;
    }
    PyObject *more = PyNumber_Add(before, work->one);
    int failed = more == NULL || PyDict_SetItem(work->uses, id, more) < 0;
    Py_XDECREF(more);
    return failed ? -1 : 0;
}

/* Whether an output of a call has its value from what the call has kept; -1 is an error. */
static int
takes_value(Collection *work, NodeObject *output)
{
    PyObject *slab = ((NodeObject *)output->inputs)->value;
    if (slab == Py_None || (PyTuple_CheckExact(slab) && PyTuple_GET_SIZE(slab) == 0)) {
        return 0;
    }
    PyObject *taken = PyObject_CallOneArg(work->take, (PyObject *)output);
    int is_taken = taken == NULL ? -1 : PyObject_IsTrue(taken);
    Py_XDECREF(taken);
    return is_taken;
}

/* Note what a node without value reads: something without value, or not. Returns -1 with an exception. */
static int
note_operand(Collection *work, NodeObject *node, NodeObject *operand)
{
    if (operand->value != Py_None) {
        return 0;
    }
    int is_met = PyDict_Contains(work->uses, operand->id);
    int is_bound = is_met == 0 && work->bound != Py_None ? PySequence_Contains(work->bound, operand->id) : 0;
    if (is_met != 0 || is_bound != 0) {
        return is_met < 0 || is_bound < 0 ? -1 : is_met ? add_use(work, operand->id) : 0;
    }
    if (is_projection(operand)) {
        int is_taken = takes_value(work, operand);
        if (is_taken != 0) {
            return is_taken < 0 ? -1 : PyList_Append(work->lent, (PyObject *)operand);
        }
    }
    if (add_use(work, operand->id) < 0) {
        return -1;
    }
    if (work->stops && operand->piece != NULL && operand->piece != Py_None) {
        work->reads_lost = 1;
        return 0;
    }
    work->is_inverted |= number_of(operand) > number_of(node);
    return PyList_Append(work->order, (PyObject *)operand);
}

static int
note_sources(Collection *work, NodeObject *node)
{
    if (is_projection(node)) {
        NodeObject *call = (NodeObject *)node->inputs;
        work->has_calls = 1;
        work->is_inverted |= number_of(call) > number_of(node);
        int is_new = add_use(work, call->id);
        return is_new <= 0 ? is_new : PyList_Append(work->order, (PyObject *)call);
    }
    if (PyObject_TypeCheck(node, &BundleType) && !is_call(node) && PyList_Append(work->bundles, (PyObject *)node) < 0) {
        return -1;
    }
    PyObject *inputs = Py_NewRef(node->inputs);
    int failed = !PyTuple_Check(inputs);
    if (failed) {
        PyErr_Format(PyExc_TypeError, "expected the inputs of %R as a tuple", node);
    }
    for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(inputs); i++) {
        failed = note_operand(work, node, (NodeObject *)PyTuple_GET_ITEM(inputs, i)) < 0;
    }
    Py_DECREF(inputs);
    return failed ? -1 : 0;
}

PyDoc_STRVAR(pending_nodes_doc,
"pending_nodes(order, uses, bundles, lent, bound, take, stops, /)\n--\n\n"
"Extend a list of nodes without value by all that they are made from and that has no value either, and count the uses\n"
"of each, by id. What is ``bound``, by id, counts as a value. Bundles that are met are put on a list, and so are outputs\n"
"of calls to which ``take(output)`` gives a value. If it ``stops`` there, what has lost its value is no part of it.\n"
"Returns whether there are calls, whether ids are in another order than the nodes, and whether something lost is read.");

static PyObject *
pending_nodes(PyObject *module, PyObject *args)
{
    Collection work = {0};
    if (!PyArg_ParseTuple(args, "O!O!O!O!OOp", &PyList_Type, &work.order, &PyDict_Type, &work.uses, &PyList_Type,
                          &work.bundles, &PyList_Type, &work.lent, &work.bound, &work.take, &work.stops) ||
        check_nodes(NULL, PySequence_Fast_ITEMS(work.order), PyList_GET_SIZE(work.order)) < 0) {
        return NULL;
    }
    work.one = PyLong_FromLong(1);
    int failed = work.one == NULL;
    /* What is appended is looked at in turn. */
    for (Py_ssize_t at = 0; !failed && at < PyList_GET_SIZE(work.order); at++) {
        PyObject *node = Py_NewRef(PyList_GET_ITEM(work.order, at));
        failed = note_sources(&work, (NodeObject *)node) < 0;
        Py_DECREF(node);
    }
    Py_XDECREF(work.one);
    return failed ? NULL
                  : Py_BuildValue("(OOO)", work.has_calls ? Py_True : Py_False, work.is_inverted ? Py_True : Py_False,
                                  work.reads_lost ? Py_True : Py_False);
}

/* --- running it --- */

typedef struct {
    PyObject *order, *uses, *targets, *values;
    PyObject *apply, *call;  /* run a node, and a call; None: kernels and plans are called from here */
    PyObject *add, *keep;    /* ops */
    PyObject *own, *grow;    /* a value as it is kept; a sum onto its left operand, or None */
    PyObject *general;       /* run a node in the general way */
    PyObject *inside, *fail; /* run a call by its nodes; raise what becomes of an exception of a kernel */
    PyObject *dropped;       /* what is raised if a value has been evicted */
    int can_count;           /* references */
    int frees;
} Run;

/* The values that a node reads, held. */
typedef struct {
    PyObject *few[8], **item;
    Py_ssize_t count;
} Values;

static void
release_values(Values *values)
{
    for (Py_ssize_t i = 0; i < values->count; i++) {
        Py_DECREF(values->item[i]);
    }
    if (values->item != values->few) {
        PyMem_Free(values->item);
    }
    values->item = values->few;
    values->count = 0;
}

static int
read_values(Run *run, PyObject *inputs, Values *values)
{
    Py_ssize_t count = PyTuple_GET_SIZE(inputs);
    values->item = values->few;
    values->count = 0;
    if (count > (Py_ssize_t)Py_ARRAY_LENGTH(values->few)) {
        values->item = PyMem_Malloc(count * sizeof(PyObject *));
        if (values->item == NULL) {
            values->item = values->few;
            PyErr_NoMemory();
            return -1;
        }
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        NodeObject *operand = (NodeObject *)PyTuple_GET_ITEM(inputs, i);
        PyObject *value = operand->value;
        if (value == Py_None) {
            value = PyDict_GetItemWithError(run->values, operand->id);
        }
        if (value == NULL) {
            if (!PyErr_Occurred()) {
                PyErr_SetNone(run->dropped);
            }
            return -1;
        }
        values->item[values->count++] = Py_NewRef(value);
    }
    return 0;
}

/* What a Python function makes of a node and its values. */
static PyObject *
ask(PyObject *function, NodeObject *node, const Values *values)
{
    PyObject *list = PyList_New(values->count);
    for (Py_ssize_t i = 0; list != NULL && i < values->count; i++) {
        PyList_SET_ITEM(list, i, Py_NewRef(values->item[i]));
    }
    PyObject *found = list == NULL ? NULL : PyObject_CallFunctionObjArgs(function, node, list, NULL);
    Py_XDECREF(list);
    return found;
}

/* Let an exception of a kernel become an error that names the node. */
static void
blame(Run *run, NodeObject *node)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception)) {
        return;
    }
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(error, traceback);
    }
    PyObject *none = PyObject_CallFunctionObjArgs(run->fail, node, error, NULL);
    if (none != NULL) {
        PyErr_SetObject(type, error);
    }
    Py_XDECREF(none);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
}

/* How many uses of a node are left; -1 where that is not counted, or with an exception. */
static Py_ssize_t
uses_of(Run *run, PyObject *id)
{
    PyObject *uses = PyDict_GetItemWithError(run->uses, id);
    return uses == NULL ? -1 : PyLong_AsSsize_t(uses);
}

/* Whether a value is an array with many bytes; -1 is an error. */
static int
is_large(PyObject *value)
{
    if ((PyObject *)Py_TYPE(value) != array_class) {
        return 0;
    }
    PyObject *nbytes = PyObject_GetAttr(value, name_nbytes);
    long long size = nbytes == NULL ? -1 : PyLong_AsLongLong(nbytes);
    Py_XDECREF(nbytes);
    return size < 0 ? -1 : size >= LARGE;
}

/* Do a sum onto its left operand, a large temporary that nothing else looks at. NULL, without an exception, if that is
   none. */
static PyObject *
grow_operand(Run *run, NodeObject *node, const Values *values)
{
    PyObject *array = values->item[0];
    NodeObject *left = (NodeObject *)PyTuple_GET_ITEM(node->inputs, 0);
    if (!run->can_count || (PyObject *)Py_TYPE(array) != array_class || left->value != Py_None ||
        Py_REFCNT(array) > 2 || uses_of(run, left->id) != 1) { /* the table of values, and those of this node */
        return NULL;
    }
    PyObject *sum = is_large(array) > 0 ? ask(run->grow, node, values) : NULL;
    if (sum == Py_None) {
        Py_CLEAR(sum);
    }
    return sum;
}

static PyObject *
run_node(Run *run, NodeObject *node, const Values *values)
{
    PyObject *params = node->params == no_params ? NULL : node->params;
    if (run->apply != Py_None || (params != NULL && !PyDict_CheckExact(params))) { /* of a class: with symbolic sizes */
        return ask(run->apply != Py_None ? run->apply : run->general, node, values);
    }
    if (run->frees && node->op == run->add && values->count == 2) {
        PyObject *sum = grow_operand(run, node, values);
        if (sum != NULL || PyErr_Occurred()) {
            return sum;
        }
    }
    PyObject *kernel = PyObject_GetAttr(node->op, name_kernel), *value = NULL;
    if (kernel != NULL) {
        value = PyObject_VectorcallDict(kernel, values->item, values->count, params);
        Py_DECREF(kernel);
    }
    if (value == NULL) {
        blame(run, node);
    }
    return value;
}

/* Run a call: its plan, or by its nodes if that fails, which finds the culprit. */
static PyObject *
run_plan_of(Run *run, CallObject *call, const Values *values)
{
    PyObject *kept = call->node.value;
    int has_none = kept == Py_None || (PyTuple_CheckExact(kept) && PyTuple_GET_SIZE(kept) == 0);
    if (run->apply != Py_None || !has_none || !is_plan(call->plan) || ((PlanObject *)call->plan)->run == NULL) {
        return ask(run->call, &call->node, values);
    }
    PyObject *plan = Py_NewRef(((PlanObject *)call->plan)->run);
    PyObject *results = PyObject_Vectorcall(plan, values->item, values->count, NULL);
    Py_DECREF(plan);
    if (results == NULL && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear();
        results = ask(run->inside, &call->node, values);
    }
    PyObject *fragment = results == NULL ? NULL : PyObject_GetAttr(call->plan, name_fragment);
    PyObject *count = fragment == NULL ? NULL : PyObject_GetAttr(fragment, name_results);
    Py_ssize_t shown = count == NULL ? -1 : PyLong_AsSsize_t(count);
    Py_XDECREF(fragment);
    Py_XDECREF(count);
    PyObject *residuals = NULL;
    if (shown >= 0 && PyTuple_Check(results)) {
        residuals = PyTuple_GetSlice(results, shown, PyTuple_GET_SIZE(results));
    }
    if (residuals == NULL) {
        Py_CLEAR(results);
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "a plan returns a tuple with all its outputs");
    }
    Py_SETREF(call->node.value, residuals);
    return results;
}

/* Give what a call gave to the tensors that stand for its outputs, but for those that are part of the pass. */
static int
give_to_handles(Run *run, CallObject *call, PyObject *results)
{
    if (!PyTuple_Check(results) || PyTuple_GET_SIZE(results) != call->outputs) {
        PyErr_Format(PyExc_TypeError, "a plan returns a tuple with all its outputs");
        return -1;
    }
    for (Py_ssize_t i = 0; i < call->outputs; i++) {
        NodeObject *handle = call->handles[i];
        if (handle != NULL && Py_REFCNT(handle) > 0 && handle->value == Py_None) {
            int is_inside = PyDict_Contains(run->uses, handle->id);
            if (is_inside < 0) {
                return -1;
            }
            if (!is_inside) {
                Py_SETREF(handle->value, Py_NewRef(PyTuple_GET_ITEM(results, i)));
            }
        }
    }
    return 0;
}

/* Drop the value of a node that was needed for the last time. */
static int
release_operand(Run *run, NodeObject *operand)
{
    Py_ssize_t left = uses_of(run, operand->id);
    if (left < 0) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *less = PyLong_FromSsize_t(left - 1);
    int failed = less == NULL || PyDict_SetItem(run->uses, operand->id, less) < 0;
    Py_XDECREF(less);
    if (!failed && left == 1) {
        int is_there = PyDict_Contains(run->values, operand->id);
        failed = is_there < 0 || (is_there && PyDict_DelItem(run->values, operand->id) < 0);
    }
    return failed ? -1 : 0;
}

static int
release_operands(Run *run, PyObject *inputs)
{
    if (is_call(inputs)) {
        return release_operand(run, (NodeObject *)inputs);
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs); i++) {
        if (release_operand(run, (NodeObject *)PyTuple_GET_ITEM(inputs, i)) < 0) {
            return -1;
        }
    }
    return 0;
}

/* A value fit to be kept. Nearly all are arrays of their own. */
static PyObject *
own_value(Run *run, PyObject *value)
{
    if ((PyObject *)Py_TYPE(value) == array_class) {
        PyObject *base = PyObject_GetAttr(value, name_base);
        Py_XDECREF(base);
        if (base == Py_None || base == NULL) {
            return base == NULL ? NULL : Py_NewRef(value);
        }
    }
    return PyObject_CallOneArg(run->own, value);
}

/* Keep a value where it is looked for: with its node if somebody may still ask for it, else in the table of the pass. */
static int
keep_value(Run *run, NodeObject *node, PyObject *value)
{
    int is_wanted = PySet_Contains(run->targets, node->id);
    if (is_wanted == 0) {
        Py_ssize_t uses = uses_of(run, node->id);
        if (uses < 0) {
            if (!PyErr_Occurred()) {
                PyErr_SetNone(run->dropped); /* another thread has folded it, without a value */
            }
            return -1;
        }
        is_wanted = !run->can_count || Py_REFCNT(node) > 1 + uses; /* one is that of who runs it */
    }
    int passes_on = is_wanted == 0 && node->op == run->keep;
    if (is_wanted <= 0 && !passes_on) {
        return is_wanted < 0 ? -1 : PyDict_SetItem(run->values, node->id, value);
    }
    PyObject *own = own_value(run, value);
    if (own == NULL) {
        return -1;
    }
    if (passes_on) {
        /* Those of an output of a call are made to be looked at. */
        PyObject *inputs = PyObject_GetAttr((PyObject *)node, name_inputs);
        if (inputs == NULL) {
            Py_DECREF(own);
            return -1;
        }
        NodeObject *kept = (NodeObject *)PyTuple_GET_ITEM(inputs, 0);
        Py_SETREF(kept->value, Py_NewRef(own));
        Py_DECREF(inputs);
    }
    Py_SETREF(node->value, own);
    return 0;
}

/* The value of an output of a call that ran; a new reference. */
static PyObject *
value_of_output(Run *run, NodeObject *node)
{
    PyObject *results = PyDict_GetItemWithError(run->values, ((NodeObject *)node->inputs)->id);
    if (results == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetNone(run->dropped); /* another thread has folded it, without a value */
        }
        return NULL;
    }
    return PySequence_GetItem(results, PyLong_AsSsize_t(node->output));
}

static int
run_next(Run *run, NodeObject *node)
{
    Values values = {.item = values.few, .count = 0};
    PyObject *value = NULL, *inputs = Py_NewRef(node->inputs);
    int is_output = is_projection(node), failed;
    if (is_output) {
        if (node->value != Py_None) { /* another thread computed it, and folded it */
            Py_DECREF(inputs);
            return 0;
        }
        value = value_of_output(run, node);
    } else if (!PyTuple_Check(inputs)) {
        PyErr_Format(PyExc_TypeError, "expected the inputs of %R as a tuple", node);
    } else if (read_values(run, inputs, &values) == 0) {
        value = is_call(node) ? run_plan_of(run, (CallObject *)node, &values) : run_node(run, node, &values);
    }
    release_values(&values);
    failed = value == NULL;
    if (!failed && is_call(node)) {
        failed = PyDict_SetItem(run->values, node->id, value) < 0 ||
                 give_to_handles(run, (CallObject *)node, value) < 0;
    } else if (!failed) {
        if (!run->frees) {
            /* What was computed before is small, so that it does not matter how often it was used. */
            run->frees = is_large(value);
            failed = run->frees < 0;
        }
        failed = failed || keep_value(run, node, value) < 0;
    }
    Py_XDECREF(value);
    if (!failed && run->frees) {
        failed = release_operands(run, inputs) < 0;
    }
    Py_DECREF(inputs);
    return failed ? -1 : 0;
}

PyDoc_STRVAR(run_nodes_doc,
"run_nodes(order, uses, targets, values, can_count, apply, call, hooks, /)\n--\n\n"
"Run pending nodes, which leave the list; keep the values of ``targets`` and, if references ``can`` be counted, of nodes\n"
"that are referenced from outside. ``apply(node, arguments)`` and ``call(node, arguments)`` run nodes and calls; if the\n"
"first is None, kernels and plans are called without them.");

static PyObject *
run_nodes(PyObject *module, PyObject *args)
{
    Run run = {0};
    if (!PyArg_ParseTuple(args, "O!O!O!O!pOO(OOOOOOOO)", &PyList_Type, &run.order, &PyDict_Type, &run.uses, &PySet_Type,
                          &run.targets, &PyDict_Type, &run.values, &run.can_count, &run.apply, &run.call, &run.add,
                          &run.keep, &run.own, &run.grow, &run.general, &run.inside, &run.fail, &run.dropped) ||
        check_nodes(NULL, PySequence_Fast_ITEMS(run.order), PyList_GET_SIZE(run.order)) < 0 ||
        PyList_Reverse(run.order) < 0) {
        return NULL;
    }
    run.frees = PyList_GET_SIZE(run.order) > SHORT;
    int failed = 0;
    for (Py_ssize_t count; !failed && (count = PyList_GET_SIZE(run.order)) > 0;) {
        PyObject *node = Py_NewRef(PyList_GET_ITEM(run.order, count - 1));
        failed = PyList_SetSlice(run.order, count - 1, count, NULL) < 0 || run_next(&run, (NodeObject *)node) < 0;
        Py_DECREF(node);
    }
    if (failed) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyMethodDef pass_methods[] = {
    {"pending_nodes", pending_nodes, METH_VARARGS, pending_nodes_doc},
    {"run_nodes", run_nodes, METH_VARARGS, run_nodes_doc},
    {NULL},
};
