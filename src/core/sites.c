/* Sites: the pieces that a line of the user's program asked for, and which of them it asks for now. */

#include "evaluation.h"

/* --- plans --- */

static int
plan_traverse(PlanObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->run);
    return 0;
}

static int
plan_clear(PlanObject *self)
{
    Py_CLEAR(self->run);
    return 0;
}

static void
plan_dealloc(PlanObject *self)
{
    PyObject_GC_UnTrack(self);
    plan_clear(self);
    Py_XDECREF(self->id);
    Py_XDECREF(self->output_shapes);
    Py_XDECREF(self->output_dtypes);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Note how long a run of a plan took: the fastest one counts. */
void
note_time(PlanObject *plan, double seconds)
{
    if (!(plan->seconds > 0.0 && plan->seconds <= seconds)) {
        plan->seconds = seconds;
    }
}

PyDoc_STRVAR(note_time_doc, "note_time(seconds, /)\n--\n\nNote how long a run took.");

static PyObject *
plan_note_time(PlanObject *self, PyObject *given)
{
    double seconds = PyFloat_AsDouble(given);
    if (seconds == -1.0 && PyErr_Occurred()) {
        return NULL;
    }
    note_time(self, seconds);
    Py_RETURN_NONE;
}

static PyMethodDef plan_methods[] = {
    {"note_time", (PyCFunction)plan_note_time, METH_O, note_time_doc},
    {NULL},
};

static PyMemberDef plan_members[] = {
    {"id", T_OBJECT_EX, offsetof(PlanObject, id), 0, NULL},
    {"output_shapes", T_OBJECT_EX, offsetof(PlanObject, output_shapes), 0, NULL},
    {"output_dtypes", T_OBJECT_EX, offsetof(PlanObject, output_dtypes), 0, NULL},
    {"run", T_OBJECT_EX, offsetof(PlanObject, run), 0, NULL},
    {"is_simple", T_BOOL, offsetof(PlanObject, is_simple), 0, NULL},
    {"seconds", T_DOUBLE, offsetof(PlanObject, seconds), 0, NULL},
    {NULL},
};

PyTypeObject PlanType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.PlanBase",
    .tp_doc = "What of a plan is looked at in every step; see `unspool._engine.plan.Plan`.",
    .tp_basicsize = sizeof(PlanObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)plan_dealloc,
    .tp_traverse = (traverseproc)plan_traverse,
    .tp_clear = (inquiry)plan_clear,
    .tp_methods = plan_methods,
    .tp_members = plan_members,
};

/* --- sites --- */

static int
site_traverse(SiteObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->plan);
    Py_VISIT(self->match);
    Py_VISIT(self->origins);
    Py_VISIT(self->checks);
    Py_VISIT(self->apart_results);
    return 0;
}

static int
site_clear(SiteObject *self)
{
    Py_CLEAR(self->plan);
    Py_CLEAR(self->match);
    Py_CLEAR(self->checks);
    Py_CLEAR(self->check);
    /* What pieces look at stays until the end: origins and indices refer to nothing that refers to a site. */
    return 0;
}

static void
site_dealloc(SiteObject *self)
{
    PyObject_GC_UnTrack(self);
    site_clear(self);
    Py_CLEAR(self->origins);
    Py_CLEAR(self->indices);
    Py_CLEAR(self->apart_results);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *
site_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    SiteObject *made = (SiteObject *)type->tp_alloc(type, 0);
    if (made != NULL) {
        made->origins = Py_NewRef(empty);
        made->match = Py_NewRef(Py_None);
        made->checks = PyDict_New();
        made->apart_results = PyFrozenSet_New(NULL);
        if (made->checks == NULL || made->apart_results == NULL) {
            Py_CLEAR(made);
        }
    }
    return (PyObject *)made;
}

PyDoc_STRVAR(describe_doc,
"describe(results, origins, apart_results, /)\n--\n\n"
"Say how many results the piece has, where its instructions were recorded, and which results are no part of it.");

static PyObject *
site_describe(SiteObject *self, PyObject *args)
{
    Py_ssize_t results;
    PyObject *origins, *apart;
    if (!PyArg_ParseTuple(args, "nO!O!", &results, &PyTuple_Type, &origins, &PyFrozenSet_Type, &apart)) {
        return NULL;
    }
    self->results = results;
    Py_SETREF(self->origins, Py_NewRef(origins));
    Py_SETREF(self->apart_results, Py_NewRef(apart));
    Py_RETURN_NONE;
}

static PyMemberDef site_members[] = {
    {"plan", T_OBJECT_EX, offsetof(SiteObject, plan), 0, NULL},
    {"match", T_OBJECT, offsetof(SiteObject, match), 0, NULL},
    {"origins", T_OBJECT_EX, offsetof(SiteObject, origins), READONLY, NULL},
    {"checks", T_OBJECT_EX, offsetof(SiteObject, checks), READONLY, NULL},
    {"results", T_PYSSIZET, offsetof(SiteObject, results), READONLY, NULL},
    {"length", T_PYSSIZET, offsetof(SiteObject, length), 0, NULL},
    {"nbytes", T_LONGLONG, offsetof(SiteObject, nbytes), 0, NULL},
    {"peak", T_LONGLONG, offsetof(SiteObject, peak), 0, NULL},
    {"kernels", T_LONGLONG, offsetof(SiteObject, kernels), 0, NULL},
    {"is_ready", T_BOOL, offsetof(SiteObject, is_ready), 0, NULL},
    {"is_large", T_BOOL, offsetof(SiteObject, is_large), 0, NULL},
    {"has_bundles", T_BOOL, offsetof(SiteObject, has_bundles), 0, NULL},
    {"has_large", T_BOOL, offsetof(SiteObject, has_large), 0, NULL},
    {NULL},
};

static PyMethodDef site_methods[] = {
    {"describe", (PyCFunction)site_describe, METH_VARARGS, describe_doc},
    {NULL},
};

PyTypeObject SiteType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.SiteBase",
    .tp_doc = "What of a site is looked at in every step; see `unspool._engine.folding.matching.Site`.",
    .tp_basicsize = sizeof(SiteObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = site_new,
    .tp_dealloc = (destructor)site_dealloc,
    .tp_traverse = (traverseproc)site_traverse,
    .tp_clear = (inquiry)site_clear,
    .tp_members = site_members,
    .tp_methods = site_methods,
};

/* --- lines --- */

/* The number under which the sites of a line are kept that asks for so many tensors. Two lines may have the same one:
   what is kept there is a guess, and matched. */
static PyObject *
key_of(const NodeObject *first, Py_ssize_t count)
{
    unsigned long long line = (unsigned)find_line(first->code, first->lasti);
    unsigned long long key = ((unsigned long long)(size_t)first->code >> 4) * 0x9E3779B97F4A7C15ULL;
    key ^= (line << 8 | (count & 0xFF)) * 0xC2B2AE3D27D4EB4FULL;
    return PyLong_FromUnsignedLongLong(key >> 2);
}

/* Put a site first that stands at some place of its line; other threads may be going through the list that is there. */
static int
put_first(PyObject *lines, PyObject *key, PyObject *line, Py_ssize_t place)
{
    PyObject *sites = PyList_GetSlice(line, 0, PyList_GET_SIZE(line));
    if (sites == NULL || place >= PyList_GET_SIZE(sites)) {
        Py_XDECREF(sites);
        return sites == NULL ? -1 : 0;
    }
    PyObject **item = ((PyListObject *)sites)->ob_item, *site = item[place];
    memmove(item + 1, item, place * sizeof(PyObject *));
    item[0] = site;
    int done = PyDict_SetItem(lines, key, sites);
    Py_DECREF(sites);
    return done;
}

void
release_match(Match *match)
{
    if (match->node != match->few) {
        PyMem_Free(match->node);
    }
    Py_XDECREF(match->site);
    Py_XDECREF(match->matcher);
}

/* Compare what stands behind some targets with a site; -1 is an error. Unless it matches, nothing is owned. */
static int
try_site(PyObject *site, PyObject *const *targets, Py_ssize_t count, Match *match)
{
    if (!is_site(site) || !Py_IS_TYPE(((SiteObject *)site)->match, &MatcherType) ||
        ((MatcherObject *)((SiteObject *)site)->match)->targets != count) {
        return 0;
    }
    match->site = (SiteObject *)Py_NewRef(site);
    match->matcher = (MatcherObject *)Py_NewRef(match->site->match);
    match->node = match->few;
    if (match->matcher->slots > (Py_ssize_t)Py_ARRAY_LENGTH(match->few)) {
        match->node = PyMem_Malloc(match->matcher->slots * sizeof(NodeObject *));
    }
    int found = match->node == NULL ? -1 : match_nodes(match->matcher, targets, match->node);
    if (match->node == NULL) {
        PyErr_NoMemory();
    }
    if (found <= 0) {
        release_match(match);
    }
    return found;
}

/* Find the site that matches targets, which are nodes; 0 if there is none, -1 is an error. */
int
find_match(PyObject *lines, PyObject *const *targets, Py_ssize_t count, Match *match)
{
    PyObject *key = key_of((NodeObject *)targets[0], count);
    PyObject *line = key == NULL ? NULL : PyDict_GetItemWithError(lines, key);
    int found = line == NULL && PyErr_Occurred() ? -1 : 0;
    if (line != NULL && PyList_CheckExact(line)) {
        Py_INCREF(line);
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(line) && found == 0; i++) {
            PyObject *site = Py_NewRef(PyList_GET_ITEM(line, i));
            found = try_site(site, targets, count, match);
            Py_DECREF(site);
            if (found == 1 && i > 0 && put_first(lines, key, line, i) < 0) {
                release_match(match);
                found = -1;
            }
        }
        Py_DECREF(line);
    }
    Py_XDECREF(key);
    return found;
}

static PyObject *
checked_targets(PyObject *object)
{
    PyObject *targets = PySequence_Fast(object, "targets come in a sequence");
    if (targets != NULL && (PySequence_Fast_GET_SIZE(targets) == 0 ||
                            check_nodes(NULL, PySequence_Fast_ITEMS(targets), PySequence_Fast_GET_SIZE(targets)) < 0)) {
        Py_DECREF(targets);
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "expected targets");
    }
    return targets;
}

PyDoc_STRVAR(line_key_doc,
"line_key(targets, /)\n--\n\n"
"Return the number under which the sites of the line that made the first of some targets are kept.");

static PyObject *
line_key(PyObject *module, PyObject *object)
{
    PyObject *targets = checked_targets(object);
    PyObject *key = NULL;
    if (targets != NULL) {
        key = key_of((NodeObject *)PySequence_Fast_GET_ITEM(targets, 0), PySequence_Fast_GET_SIZE(targets));
        Py_DECREF(targets);
    }
    return key;
}

static PyObject *
describe_match(const Match *match)
{
    const MatcherObject *matcher = match->matcher;
    PyObject *inputs = PyTuple_New(matcher->inputs), *values = PyTuple_New(matcher->inputs), *all = NULL;
    PyObject *outputs = nodes_at(match->node, matcher->output, matcher->outputs);
    if (inputs != NULL && values != NULL && outputs != NULL) {
        for (Py_ssize_t i = 0; i < matcher->inputs; i++) {
            NodeObject *operand = match->node[matcher->input[i].slot];
            PyTuple_SET_ITEM(inputs, i, Py_NewRef(operand));
            PyTuple_SET_ITEM(values, i, Py_NewRef(operand->value));
        }
        all = PyTuple_Pack(4, match->site, inputs, outputs, values);
    }
    Py_XDECREF(inputs);
    Py_XDECREF(values);
    Py_XDECREF(outputs);
    return all;
}

PyDoc_STRVAR(find_site_doc,
"find_site(lines, targets, /)\n--\n\n"
"Return the site that matches targets without values, with the nodes at its inputs and outputs and the values of the\n"
"inputs; None if there is none. ``lines`` has lists of sites by `line_key`; the one that matched is put first.");

static PyObject *
find_site(PyObject *module, PyObject *args)
{
    PyObject *lines, *object;
    if (!PyArg_ParseTuple(args, "O!O", &PyDict_Type, &lines, &object)) {
        return NULL;
    }
    PyObject *targets = checked_targets(object);
    if (targets == NULL) {
        return NULL;
    }
    Match match;
    int found = find_match(lines, PySequence_Fast_ITEMS(targets), PySequence_Fast_GET_SIZE(targets), &match);
    PyObject *all = found == 0 ? Py_NewRef(Py_None) : NULL;
    if (found == 1) {
        all = describe_match(&match);
        release_match(&match);
    }
    Py_DECREF(targets);
    return all;
}

PyMethodDef site_functions[] = {
    {"line_key", line_key, METH_O, line_key_doc},
    {"find_site", find_site, METH_VARARGS, find_site_doc},
    {NULL},
};
