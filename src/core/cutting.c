/* Cutting pieces that share nodes. What belongs to which is decided in Python, once for each pattern in which they share
   them (`unspool._engine.folding.cutting`): that is a recipe, by which pieces of the same pattern are cut here. */

#include "evaluation.h"

static PyObject *name_find_walk, *name_recipe, *name_recipes;

/* What stands at a slot of one of the pieces. */
typedef struct {
    long long id;
    NodeObject *node;
    Py_ssize_t piece, slot;
} Met;

typedef struct {
    PyObject *pieces; /* a tuple: the one that is cut, and later ones */
    PyObject *held;   /* results of these, which are held meanwhile */
    Met *met;         /* youngest first */
    Py_ssize_t count, room;
    long long end;
    Py_ssize_t *first; /* where each node begins among what was met; one more at the end */
    Py_ssize_t nodes;
    int *key;
    Py_ssize_t length, space;
} Pattern;

/* --- what is inside --- */

static int
meet(Pattern *self, NodeObject *node, Py_ssize_t piece, Py_ssize_t slot)
{
    if (self->count == self->room) {
        Py_ssize_t room = 2 * self->room + 64;
        Met *met = PyMem_Realloc(self->met, room * sizeof(Met));
        if (met == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        self->met = met;
        self->room = room;
    }
    self->met[self->count++] = (Met){number_of(node), node, piece, slot};
    return 0;
}

/* Meet all that is behind the results of a piece that are alive: of a later one, what may belong to the first. */
static int
meet_piece(Pattern *self, Py_ssize_t number)
{
    PieceObject *piece = (PieceObject *)PyTuple_GET_ITEM(self->pieces, number);
    const PieceObject *cut = (PieceObject *)PyTuple_GET_ITEM(self->pieces, 0);
    SiteObject *site = (SiteObject *)piece->site;
    PyObject *indices = PyList_New(0);
    Py_ssize_t begin = PyList_GET_SIZE(self->held);
    for (Py_ssize_t i = 0; indices != NULL && i < site->results; i++) {
        PyObject *node = Py_XNewRef((PyObject *)output_alive(piece, i));
        PyObject *index = node == NULL ? NULL : PyLong_FromSsize_t(i);
        int is_apart = index == NULL ? 1 : PySet_Contains(site->apart_results, index);
        if (is_apart < 0 || (node != NULL && index == NULL) ||
            (!is_apart && (PyList_Append(indices, index) < 0 || PyList_Append(self->held, node) < 0))) {
            Py_CLEAR(indices);
        }
        Py_XDECREF(index);
        Py_XDECREF(node);
    }
    PyObject *tuple = indices == NULL ? NULL : PyList_AsTuple(indices);
    PyObject *walk = tuple == NULL ? NULL : PyObject_CallMethodOneArg(piece->site, name_find_walk, tuple);
    Py_ssize_t slots = 0;
    NodeObject **node = walk == NULL ? NULL
                                     : nodes_inside(walk, piece, (NodeObject *const *)((PyListObject *)self->held)->ob_item + begin,
                                                    PyList_GET_SIZE(self->held) - begin, &slots);
    int failed = node == NULL;
    for (Py_ssize_t i = begin; !failed && number == 0 && i < PyList_GET_SIZE(self->held); i++) {
        long long id = number_of((NodeObject *)PyList_GET_ITEM(self->held, i));
        self->end = id > self->end ? id : self->end;
    }
    for (Py_ssize_t slot = 0; !failed && slot < slots; slot++) {
        if (node[slot] != NULL && (number == 0 || (number_of(node[slot]) > cut->newest && number_of(node[slot]) <= self->end))) {
            failed = meet(self, node[slot], number, slot) < 0;
        }
    }
    PyMem_Free(node);
    Py_XDECREF(indices);
    Py_XDECREF(tuple);
    Py_XDECREF(walk);
    return failed ? -1 : 0;
}

static int
is_younger(const void *one, const void *other)
{
    const Met *a = one, *b = other;
    if (a->id != b->id) {
        return a->id > b->id ? -1 : 1;
    }
    return a->piece != b->piece ? (a->piece < b->piece ? -1 : 1) : (a->slot > b->slot) - (a->slot < b->slot);
}

/* --- the key --- */

static int
put(Pattern *self, long long number)
{
    if (self->length + 2 > self->space) {
        Py_ssize_t space = 2 * self->space + 256;
        int *key = PyMem_Realloc(self->key, space * sizeof(int));
        if (key == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        self->key = key;
        self->space = space;
    }
    self->key[self->length++] = (int)(number & 0x7fffffff);
    self->key[self->length++] = (int)(number >> 31);
    return 0;
}

/* The place of the first node that is no younger than an id. */
static Py_ssize_t
rank_of(const Pattern *self, long long id)
{
    Py_ssize_t low = 0, high = self->nodes;
    while (low < high) {
        Py_ssize_t middle = (low + high) / 2;
        if (self->met[self->first[middle]].id > id) {
            low = middle + 1;
        }
        else {
            high = middle;
        }
    }
    return low;
}

/* Put what a node reads: a node of the pieces, by its place, or something else, by its number among these, with its op if
   it is a leaf and its age if it is none. */
static int
put_operand(Pattern *self, NodeObject *operand, NodeObject **beyond, Py_ssize_t *others)
{
    long long id = number_of(operand);
    Py_ssize_t rank = rank_of(self, id), number = 0;
    if (rank < self->nodes && self->met[self->first[rank]].node == operand) {
        return put(self, 4 * (long long)rank);
    }
    while (number < *others && beyond[number] != operand) {
        number++;
    }
    if (number == *others) {
        beyond[(*others)++] = operand;
    }
    int is_leaf = PyTuple_Check(operand->inputs) && PyTuple_GET_SIZE(operand->inputs) == 0;
    if (put(self, 4 * (long long)number + (is_leaf ? 1 : 2)) < 0) {
        return -1;
    }
    return put(self, is_leaf ? (long long)(size_t)operand->op : (long long)rank);
}

/* How often a node is among the results that are held meanwhile. */
static Py_ssize_t
times_held(const Pattern *self, const NodeObject *node)
{
    Py_ssize_t times = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(self->held); i++) {
        times += PyList_GET_ITEM(self->held, i) == (PyObject *)node;
    }
    return times;
}

/* Put all that decides what belongs to whom; returns how often each node is referred to, as far as it matters, or NULL. */
static Py_ssize_t *
put_nodes(Pattern *self)
{
    Py_ssize_t operands = 0, others = 0;
    Py_ssize_t *references = PyMem_Calloc(self->nodes + 1, sizeof(Py_ssize_t));
    for (Py_ssize_t i = 0; i < self->nodes && references != NULL; i++) {
        PyObject *inputs = self->met[self->first[i]].node->inputs;
        operands += PyTuple_GET_SIZE(inputs);
        for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(inputs); j++) {
            Py_ssize_t rank = rank_of(self, number_of((NodeObject *)PyTuple_GET_ITEM(inputs, j)));
            if (rank < self->nodes && (PyObject *)self->met[self->first[rank]].node == PyTuple_GET_ITEM(inputs, j)) {
                references[rank]++;
            }
        }
    }
    NodeObject **beyond = PyMem_Malloc((operands + 1) * sizeof(NodeObject *));
    int failed = references == NULL || beyond == NULL;
    if (failed) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->pieces) && !failed; i++) {
        const PieceObject *piece = (PieceObject *)PyTuple_GET_ITEM(self->pieces, i);
        failed = put(self, (long long)(size_t)piece->site) < 0 ||
                 put(self, 2 * piece->is_loose + (PyTuple_Check(piece->residuals) && PyTuple_GET_SIZE(piece->residuals) > 0)) < 0;
    }
    for (Py_ssize_t i = 0; i < self->nodes && !failed; i++) {
        NodeObject *node = self->met[self->first[i]].node;
        /* One more than there are uses here stands for all that are others'. */
        Py_ssize_t all = Py_REFCNT(node) - times_held(self, node);
        references[i] = all < references[i] + 1 ? all : references[i] + 1;
        failed = put(self, self->first[i + 1] - self->first[i]) < 0 || put(self, references[i]) < 0 ||
                 put(self, node->is_again) < 0;
        for (Py_ssize_t j = self->first[i]; j < self->first[i + 1] && !failed; j++) {
            failed = put(self, (self->met[j].piece << 20) + self->met[j].slot) < 0;
        }
        for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(node->inputs) && !failed; j++) {
            failed = put_operand(self, (NodeObject *)PyTuple_GET_ITEM(node->inputs, j), beyond, &others) < 0;
        }
    }
    PyMem_Free(beyond);
    if (failed) {
        PyMem_Free(references);
        return NULL;
    }
    return references;
}

/* --- recipes --- */

/* Return the nodes of a pattern, and how many references each has from others and from among them. */
static int
show(const Pattern *self, const Py_ssize_t *references, PyObject **nodes, PyObject **counts)
{
    *nodes = PyList_New(self->nodes);
    *counts = PyList_New(self->nodes);
    for (Py_ssize_t i = 0; i < self->nodes && *nodes != NULL && *counts != NULL; i++) {
        PyObject *count = PyLong_FromSsize_t(references[i]);
        if (count == NULL) {
            return -1;
        }
        PyList_SET_ITEM(*counts, i, count);
        PyList_SET_ITEM(*nodes, i, Py_NewRef(self->met[self->first[i]].node));
    }
    return *nodes == NULL || *counts == NULL ? -1 : 0;
}

/* Find the recipe for a pattern, or have it made; None if there is none. The nodes are given, and held by a list. */
static PyObject *
find_recipe(QueueObject *queue, Pattern *self, PyObject **nodes)
{
    Py_ssize_t *references = put_nodes(self);
    PyObject *counts = NULL, *recipe = NULL;
    PyObject *site = ((PieceObject *)PyTuple_GET_ITEM(self->pieces, 0))->site;
    if (references != NULL && show(self, references, nodes, &counts) == 0) {
        PyObject *key = PyBytes_FromStringAndSize((const char *)self->key, self->length * sizeof(int));
        PyObject *recipes = key == NULL ? NULL : PyObject_GetAttr(site, name_recipes);
        if (recipes != NULL && PyDict_Check(recipes)) {
            recipe = Py_XNewRef(PyDict_GetItemWithError(recipes, key));
            if (recipe == NULL && !PyErr_Occurred()) {
                recipe = PyObject_CallMethodObjArgs((PyObject *)queue, name_recipe, self->pieces, *nodes, counts, key, NULL);
            }
        }
        Py_XDECREF(recipes);
        Py_XDECREF(key);
    }
    PyMem_Free(references);
    Py_XDECREF(counts);
    return recipe;
}

/* --- parts --- */

/* What a piece has kept for derivatives at a place, borrowed; NULL if it has nothing there. */
static PyObject *
kept_at(const Pattern *self, Py_ssize_t piece, Py_ssize_t place)
{
    PyObject *residuals = piece < 0 ? NULL : ((PieceObject *)PyTuple_GET_ITEM(self->pieces, piece))->residuals;
    if (residuals == NULL || !PyTuple_Check(residuals) || place >= PyTuple_GET_SIZE(residuals)) {
        return NULL;
    }
    PyObject *value = PyTuple_GET_ITEM(residuals, place);
    return value == Py_None ? NULL : value;
}

static PyObject *
inputs_by(PyObject *nodes, const Py_ssize_t *places, Py_ssize_t count)
{
    PyObject *inputs = PyTuple_New(count / 2);
    for (Py_ssize_t i = 0; inputs != NULL && i < count / 2; i++) {
        PyObject *read = ((NodeObject *)PyList_GET_ITEM(nodes, places[2 * i]))->inputs;
        PyTuple_SET_ITEM(inputs, i, Py_NewRef(PyTuple_GET_ITEM(read, places[2 * i + 1])));
    }
    return inputs;
}

static PyObject *
residuals_by(const Pattern *self, PyObject *nodes, const Py_ssize_t *places, Py_ssize_t count)
{
    PyObject *residuals = PyTuple_New(count / 3);
    for (Py_ssize_t i = 0; residuals != NULL && i < count / 3; i++) {
        PyObject *value = kept_at(self, places[3 * i], places[3 * i + 1]);
        Py_ssize_t own = places[3 * i + 2];
        if (value == NULL) {
            value = own < 0 ? Py_None : ((NodeObject *)PyList_GET_ITEM(nodes, own))->value;
        }
        PyTuple_SET_ITEM(residuals, i, Py_NewRef(value));
    }
    return residuals;
}

/* Make a part by its recipe: (site, inputs, outputs, residuals, values) with flat tuples of places. */
static PieceObject *
make_part(const Pattern *self, PyObject *nodes, PyObject *recipe)
{
    PyObject *site, *flat[4];
    Py_ssize_t *place[4] = {NULL, NULL, NULL, NULL}, count[4] = {0, 0, 0, 0};
    if (!PyArg_ParseTuple(recipe, "OOOOO", &site, &flat[0], &flat[1], &flat[2], &flat[3])) {
        return NULL;
    }
    int failed = 0;
    for (int i = 0; i < 4 && !failed; i++) {
        place[i] = read_slots(flat[i], -1, PY_SSIZE_T_MAX, &count[i]);
        failed = place[i] == NULL;
    }
    PieceObject *part = NULL;
    NodeObject **outputs = failed ? NULL : PyMem_Malloc((count[1] + 1) * sizeof(NodeObject *));
    PyObject *inputs = outputs == NULL ? NULL : inputs_by(nodes, place[0], count[0]);
    PyObject *residuals = inputs == NULL ? NULL : residuals_by(self, nodes, place[2], count[2]);
    if (residuals != NULL) {
        for (Py_ssize_t i = 0; i < count[1]; i++) {
            outputs[i] = (NodeObject *)PyList_GET_ITEM(nodes, place[1][i]);
        }
        /* What other parts read now is there if it was kept for derivatives. */
        for (Py_ssize_t i = 0; i < count[3] / 3; i++) {
            NodeObject *node = (NodeObject *)PyList_GET_ITEM(nodes, place[3][3 * i]);
            PyObject *value = kept_at(self, place[3][3 * i + 1], place[3][3 * i + 2]);
            if (value != NULL && node->value == Py_None) {
                Py_SETREF(node->value, Py_NewRef(value));
            }
        }
        part = make_piece(site, inputs, outputs, count[1], residuals);
    }
    else if (!failed && outputs == NULL) {
        PyErr_NoMemory();
    }
    for (int i = 0; i < 4; i++) {
        PyMem_Free(place[i]);
    }
    PyMem_Free(outputs);
    Py_XDECREF(inputs);
    Py_XDECREF(residuals);
    return part;
}

/* Whether the next pieces may well record again what a part has: more have done so than are left waiting. */
static int
goes_on(QueueObject *queue, PyObject *nodes, PyObject *again, PyObject *readers)
{
    for (Py_ssize_t i = 0; i + 1 < PyTuple_GET_SIZE(again); i += 2) {
        NodeObject *node = (NodeObject *)PyList_GET_ITEM(nodes, PyLong_AsSsize_t(PyTuple_GET_ITEM(again, i)));
        PyObject *count = readers == NULL ? NULL : PyDict_GetItemWithError(readers, node->id);
        Py_ssize_t times = PyLong_AsSsize_t(PyTuple_GET_ITEM(again, i + 1));
        if (times + (count == NULL ? 0 : PyLong_AsSsize_t(count)) > queue->after) {
            return 1;
        }
    }
    return 0;
}

/* Make the parts of a recipe: (parts, what later pieces have too and how many, sites that the key names). */
static PyObject *
make_parts(QueueObject *queue, const Pattern *self, PyObject *nodes, PyObject *recipe, PyObject *readers)
{
    PyObject *recipes, *again, *sites, *parts = PyList_New(0);
    const PieceObject *piece = (PieceObject *)PyTuple_GET_ITEM(self->pieces, 0);
    if (parts == NULL || recipe == Py_None) {
        return parts;
    }
    if (!PyArg_ParseTuple(recipe, "O!O!O", &PyTuple_Type, &recipes, &PyTuple_Type, &again, &sites)) {
        Py_DECREF(parts);
        return NULL;
    }
    if (goes_on(queue, nodes, again, readers)) {
        return parts;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(recipes); i++) {
        PieceObject *part = make_part(self, nodes, PyTuple_GET_ITEM(recipes, i));
        if (part == NULL || PyList_Append(parts, (PyObject *)part) < 0) {
            Py_XDECREF(part);
            Py_DECREF(parts);
            return NULL;
        }
        part->is_loose = piece->is_loose;
        if (i == PyTuple_GET_SIZE(recipes) - 1) {
            Py_SETREF(part->slab, Py_NewRef(piece->slab));
        }
        Py_DECREF(part);
    }
    return parts;
}

/* Return, as a list, what can be folded in place of a piece, oldest first. Later pieces are given, which wait and have
   computed what was recorded before this one ended, and how many of those that wait read a node. */
PyObject *
cut_piece(QueueObject *queue, PieceObject *piece, PyObject *later, PyObject *readers)
{
    if (can_count != Py_True) {
        return PyList_New(0);
    }
    Pattern pattern = {.pieces = PyTuple_New(1 + PyList_GET_SIZE(later)), .held = PyList_New(0)};
    PyObject *nodes = NULL, *recipe = NULL, *parts = NULL;
    int failed = pattern.pieces == NULL || pattern.held == NULL;
    if (!failed) {
        PyTuple_SET_ITEM(pattern.pieces, 0, Py_NewRef((PyObject *)piece));
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(later); i++) {
            PyTuple_SET_ITEM(pattern.pieces, i + 1, Py_NewRef(PyList_GET_ITEM(later, i)));
        }
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pattern.pieces) && !failed; i++) {
            failed = meet_piece(&pattern, i) < 0;
        }
    }
    if (!failed && pattern.count == 0) {
        parts = PyList_New(0);
    }
    else if (!failed) {
        qsort(pattern.met, pattern.count, sizeof(Met), is_younger);
        pattern.first = PyMem_Malloc((pattern.count + 1) * sizeof(Py_ssize_t));
        if (pattern.first == NULL) {
            PyErr_NoMemory();
        }
        else {
            for (Py_ssize_t i = 0; i < pattern.count; i++) {
                if (i == 0 || pattern.met[i].node != pattern.met[i - 1].node) {
                    pattern.first[pattern.nodes++] = i;
                }
            }
            pattern.first[pattern.nodes] = pattern.count;
            recipe = find_recipe(queue, &pattern, &nodes);
            parts = recipe == NULL ? NULL : make_parts(queue, &pattern, nodes, recipe, readers);
        }
    }
    Py_XDECREF(recipe);
    Py_XDECREF(nodes);
    Py_XDECREF(pattern.held);
    Py_XDECREF(pattern.pieces);
    PyMem_Free(pattern.met);
    PyMem_Free(pattern.first);
    PyMem_Free(pattern.key);
    return parts;
}

/* Make the names of what cutting asks of Python's classes; returns -1 if there is no memory for them. */
int
cutting_start(void)
{
    name_find_walk = PyUnicode_InternFromString("find_walk");
    name_recipe = PyUnicode_InternFromString("_recipe");
    name_recipes = PyUnicode_InternFromString("recipes");
    return name_find_walk == NULL || name_recipe == NULL || name_recipes == NULL ? -1 : 0;
}
