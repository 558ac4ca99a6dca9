/* Records of nodes for a file: what is new is found and put in order, and written as far as its kind is in the file.

   Nearly all that is new when a run is written are steps: calls, their outputs, nodes of pieces that wait. All else is
   left to `unspool._saving.writer`, which also has the general form of each record; both write the same bytes. */

#include "core.h"
#include "journal.h"

/* --- bytes --- */

/* Have room for so many bytes more; -1 is an error. */
static int
reserve(Buffer *buffer, Py_ssize_t more)
{
    if (buffer->size + more <= buffer->room) {
        return 0;
    }
    Py_ssize_t room = 2 * (buffer->size + more) + 256;
    char *bytes = PyMem_Realloc(buffer->bytes, room);
    if (bytes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    buffer->bytes = bytes;
    buffer->room = room;
    return 0;
}

/* The longest that a number gets: seven bits in a byte. */
#define LONGEST 10

/* Append a number from 0 on, where there is room for it. */
static inline void
put_count(Buffer *buffer, unsigned long long number)
{
    while (number > 127) {
        buffer->bytes[buffer->size++] = (char)((number & 127) | 128);
        number >>= 7;
    }
    buffer->bytes[buffer->size++] = (char)number;
}

static inline void
put_whole(Buffer *buffer, long long number)
{
    put_count(buffer, number >= 0 ? (unsigned long long)number << 1 : (unsigned long long)~number << 1 | 1);
}

static inline void
put_byte(Buffer *buffer, int byte)
{
    buffer->bytes[buffer->size++] = (char)byte;
}

/* Move what was written behind what Python wrote, and begin anew; -1 is an error. */
static int
flush(JournalObject *self, Buffer *buffer)
{
    Py_ssize_t before = PyByteArray_GET_SIZE(self->out);
    int failed = PyByteArray_Resize(self->out, before + buffer->size);
    if (failed == 0 && buffer->size > 0) {
        memcpy(PyByteArray_AS_STRING(self->out) + before, buffer->bytes, buffer->size);
    }
    buffer->size = 0;
    return failed;
}

/* Move what was written behind what Python wrote, for the last time; -1 is an error. */
static int
hand_over(JournalObject *self, Buffer *buffer)
{
    int failed = flush(self, buffer);
    PyMem_Free(buffer->bytes);
    return failed;
}

/* --- records --- */

/* Append the inputs of a record: how far back each is, or 0 where the last record of the kind had the same. -1 is an
   error. */
static int
put_inputs(JournalObject *self, Buffer *buffer, Py_ssize_t kind, PyObject *inputs)
{
    Py_ssize_t count = PyTuple_GET_SIZE(inputs);
    Inputs *last = inputs_of_kind(self, kind, count);
    if (last == NULL || reserve(buffer, (count + 1) * LONGEST) < 0) {
        return -1;
    }
    int compares = last->is_known;
    for (Py_ssize_t i = 0; i < count; i++) {
        long long id = number_of((NodeObject *)PyTuple_GET_ITEM(inputs, i));
        if (compares && last->ids[i] == id) {
            put_count(buffer, 0);
            continue;
        }
        long long number = journal_find(self, id);
        if (number < 0) {
            PyErr_Format(PyExc_KeyError, "an input of a record is not in the file: %lld", id);
            return -1;
        }
        put_count(buffer, compares && last->numbers[i] == number ? 0 : self->next - number);
        last->ids[i] = id;
        last->numbers[i] = number;
    }
    last->is_known = 1;
    return 0;
}

static int
is_evaluated(const NodeObject *node)
{
    return node->value != Py_None || (node->piece != NULL && node->piece != Py_None);
}

static inline void
put_id(JournalObject *self, Buffer *buffer, long long id)
{
    put_whole(buffer, id + self->offset - self->last_id);
    self->last_id = id + self->offset;
}

/* Write what nodes of a kind have in common, before the first of them, and return what is remembered of it. NULL if there
   is none who can, and with an exception if that is an error. What cannot be in a file is left to who says where. */
static Kind *
new_kind(JournalObject *self, Buffer *buffer, NodeObject *node, Kind wanted)
{
    if (self->encoder == Py_None || flush(self, buffer) < 0) {
        return NULL;
    }
    int before = self->is_busy;
    self->is_busy = 1; /* other threads may get their turn meanwhile, and must not write between */
    wanted.number = is_call((PyObject *)node) ? entry_of_call_kind(self->encoder, (CallObject *)node)
                                              : entry_of_recipe(self->encoder, node);
    self->is_busy = before;
    if (wanted.number < 0 && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear();
    }
    return wanted.number < 0 || journal_remember(self, wanted) < 0 ? NULL : journal_kind(self, &wanted);
}

/* Each of these returns whether the record was written, and writes nothing if it was not; -1 is an error. */

static int
put_output(JournalObject *self, Buffer *buffer, NodeObject *node, long long id)
{
    if (!is_call(node->inputs) || !is_evaluated(node) || reserve(buffer, 2 + 3 * LONGEST) < 0) {
        return PyErr_Occurred() ? -1 : 0;
    }
    long long call = journal_find(self, number_of((NodeObject *)node->inputs));
    if (call < 0) {
        return 0;
    }
    put_byte(buffer, RECORD_OUTPUT);
    put_id(self, buffer, id);
    put_count(buffer, self->next - call);
    put_count(buffer, PyLong_AsUnsignedLongLongMask(node->output));
    put_byte(buffer, WAS_EVALUATED);
    return 1;
}

static int
put_call(JournalObject *self, Buffer *buffer, CallObject *call, long long id)
{
    long long depth = PyLong_AsLongLong(call->depth);
    Kind wanted = {{call->plan, call->origins}, depth != 0, 0};
    Kind *kind = journal_kind(self, &wanted);
    kind = kind == NULL ? new_kind(self, buffer, &call->node, wanted) : kind;
    if (kind == NULL || reserve(buffer, 1 + 3 * LONGEST) < 0) {
        return PyErr_Occurred() ? -1 : 0;
    }
    put_byte(buffer, RECORD_CALL);
    put_id(self, buffer, id);
    put_count(buffer, kind->number);
    put_whole(buffer, depth - self->last_depth);
    self->last_depth = depth;
    return put_inputs(self, buffer, kind->number, call->node.inputs) < 0 ? -1 : 1;
}

/* Remember a node of which something may change yet; -1 is an error. */
static int
watch(PyObject *watched, NodeObject *node)
{
    PyObject *reference = PyWeakref_NewRef((PyObject *)node, NULL);
    int failed = reference == NULL ? -1 : PyDict_SetItem(watched, node->id, reference);
    Py_XDECREF(reference);
    return failed;
}

/* Take those away of which it has changed, and those that have died; return the former. */
static PyObject *
take(PyObject *watched, int (*has_changed)(const NodeObject *))
{
    PyObject *changed = PyList_New(0), *gone = PyList_New(0), *id, *reference;
    Py_ssize_t at = 0;
    int failed = changed == NULL || gone == NULL;
    while (!failed && PyDict_Next(watched, &at, &id, &reference)) {
        PyObject *node = PyWeakref_Check(reference) ? PyWeakref_GET_OBJECT(reference) : Py_None;
        int is_alive = is_node(node), changes = is_alive && has_changed((NodeObject *)node);
        failed = ((changes || !is_alive) && PyList_Append(gone, id) < 0) || (changes && PyList_Append(changed, node) < 0);
    }
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(gone); i++) {
        failed = PyDict_DelItem(watched, PyList_GET_ITEM(gone, i)) < 0;
    }
    Py_XDECREF(gone);
    if (failed) {
        Py_CLEAR(changed);
    }
    return changed;
}

static int
is_projection(const NodeObject *node)
{
    return Py_IS_TYPE(node, (PyTypeObject *)projection_class);
}

PyObject *
journal_take_folded(JournalObject *self, PyObject *unused)
{
    return take(self->unfolded, is_projection);
}

PyObject *
journal_take_evaluated(JournalObject *self, PyObject *unused)
{
    return take(self->unevaluated, is_evaluated);
}

static int
put_node(JournalObject *self, Buffer *buffer, NodeObject *node, long long id)
{
    Kind wanted = {{node->op, node->params, node->shape, node->dtype, node->code, (PyObject *)Py_TYPE(node)},
                   node->lasti, 0};
    Kind *kind = PyTuple_Check(node->inputs) ? journal_kind(self, &wanted) : NULL;
    kind = kind == NULL && PyTuple_Check(node->inputs) ? new_kind(self, buffer, node, wanted) : kind;
    if (kind == NULL || reserve(buffer, 2 + 3 * LONGEST) < 0) {
        return PyErr_Occurred() ? -1 : 0;
    }
    int evaluated = is_evaluated(node), is_constant = node->op == constant_op;
    int is_leaf = PySet_Contains(leaf_ops, node->op);
    if (is_leaf < 0) {
        return -1;
    }
    put_byte(buffer, RECORD_NODE);
    put_id(self, buffer, id);
    put_count(buffer, kind->number);
    put_byte(buffer, (evaluated ? WAS_EVALUATED : 0) | (is_constant && is_seed(node) ? IS_SEED : 0));
    put_count(buffer, PyTuple_GET_SIZE(node->inputs));
    if (put_inputs(self, buffer, kind->number, node->inputs) < 0) {
        return -1;
    }
    if (is_constant) { /* stays what it is */
        return 1;
    }
    if (is_leaf) {
        return PyList_Append(self->leaves, (PyObject *)node) < 0 ? -1 : 1;
    }
    if (watch(self->unfolded, node) < 0) {
        return -1;
    }
    return !evaluated && watch(self->unevaluated, node) < 0 ? -1 : 1;
}

static int
put_record(JournalObject *self, Buffer *buffer, NodeObject *node, long long id)
{
    if (id <= self->adopted || (node->name != NULL && node->name != Py_None)) {
        return 0;
    }
    if (Py_IS_TYPE(node, (PyTypeObject *)projection_class)) {
        return put_output(self, buffer, node, id);
    }
    return is_call(node) ? put_call(self, buffer, (CallObject *)node, id) : put_node(self, buffer, node, id);
}

/* --- values --- */

/* Write the value of the node with a number, if it has at most so many bytes and they lie in one row; whether it was
   written, -1 is an error. */
static int
put_value(JournalObject *self, Buffer *buffer, PyObject *value, long long number, Py_ssize_t most)
{
    Laid laid;
    if (value == NULL || !PyObject_CheckBuffer(value)) {
        return 0;
    }
    if (lay_out(value, &laid) < 0) {
        return -1;
    }
    int written = laid.bytes.len <= most && is_dense(&laid);
    if (written && reserve(buffer, 1 + LONGEST + laid.bytes.ndim + laid.bytes.len) < 0) {
        written = -1;
    }
    if (written > 0) {
        put_byte(buffer, RECORD_INLINE);
        put_count(buffer, self->next - number);
        for (int i = 0; i < laid.bytes.ndim; i++) {
            put_byte(buffer, laid.axes[i]);
        }
        memcpy(buffer->bytes + buffer->size, laid.bytes.buf, laid.bytes.len);
        buffer->size += laid.bytes.len;
    }
    PyBuffer_Release(&laid.bytes);
    return written;
}

PyObject *
journal_put_values(JournalObject *self, PyObject *args)
{
    PyObject *nodes, *left = PyList_New(0);
    Py_ssize_t most;
    if (left == NULL || !PyArg_ParseTuple(args, "O!n", &PyList_Type, &nodes, &most)) {
        Py_XDECREF(left);
        return NULL;
    }
    Buffer buffer = {NULL, 0, 0};
    int failed = 0;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(nodes); i++) {
        PyObject *node = PyList_GET_ITEM(nodes, i);
        if (check_nodes(NULL, &node, 1) < 0) {
            failed = 1;
            break;
        }
        long long number = journal_find(self, number_of((NodeObject *)node));
        PyObject *value = number < 0 ? NULL : Py_XNewRef(((NodeObject *)node)->value);
        int written = put_value(self, &buffer, value, number, most);
        Py_XDECREF(value);
        failed = written < 0 || (written == 0 && PyList_Append(left, node) < 0);
    }
    if (hand_over(self, &buffer) < 0 || failed) {
        Py_CLEAR(left);
    }
    return left;
}

/* Values of at most so many bytes stand among the records, as in `unspool._saving.writer`. */
#define MOST_INLINE 64

/* Write a constant and its value, if its kind is known and the value is small and lies in one row; whether it was
   written, -1 is an error. */
static int
put_constant(JournalObject *self, Buffer *buffer, NodeObject *node)
{
    Py_buffer value;
    if (PyObject_GetBuffer(node->value, &value, PyBUF_C_CONTIGUOUS) < 0) {
        PyErr_Clear();
        return 0;
    }
    int fits = value.ndim <= 1 && value.len <= MOST_INLINE;
    PyBuffer_Release(&value);
    long long id = number_of(node), number = self->next;
    int written = !fits ? 0 : reserve(buffer, 2 * LONGEST) < 0 ? -1 : put_record(self, buffer, node, id);
    if (written > 0 && journal_enter(self, id, self->next++) < 0) {
        return -1;
    }
    return written > 0 ? put_value(self, buffer, node->value, number, MOST_INLINE) : written;
}

/* Write the inputs of a call that are constants and not in the file; whether all inputs are there then, -1 is an error. */
int
put_constants(JournalObject *self, PyObject *inputs)
{
    Buffer buffer = {NULL, 0, 0};
    int are_known = 1;
    for (Py_ssize_t i = 0; are_known >= 0 && i < PyTuple_GET_SIZE(inputs); i++) {
        NodeObject *input = (NodeObject *)PyTuple_GET_ITEM(inputs, i);
        if (journal_find(self, number_of(input)) < 0) {
            int written = input->op == constant_op ? put_constant(self, &buffer, input) : 0;
            are_known = written < 0 ? -1 : are_known && written;
        }
    }
    return hand_over(self, &buffer) < 0 ? -1 : are_known;
}

/* Write a call whose kind and inputs are known, and its outputs as far as they are not in the file; -1 is an error. */
int
put_folded(JournalObject *self, CallObject *call)
{
    Buffer buffer = {NULL, 0, 0};
    long long id = number_of(&call->node);
    int failed = put_call(self, &buffer, call, id) < 0 || journal_enter(self, id, self->next++) < 0;
    for (Py_ssize_t i = 0; !failed && i < call->outputs; i++) {
        NodeObject *node = call->handles[i];
        /* One that only whoever folds refers to is about to die, and one without a reference does. */
        if (node == NULL || Py_REFCNT(node) <= 1 || journal_has(self, id = number_of(node))) {
            continue;
        }
        int written = put_record(self, &buffer, node, id);
        failed = written < 0 || (written > 0 && journal_enter(self, id, self->next++) < 0);
    }
    return hand_over(self, &buffer) < 0 || failed ? -1 : 0;
}

PyObject *
journal_put_known(JournalObject *self, PyObject *args)
{
    PyObject *nodes;
    Py_ssize_t at;
    long long limit;
    if (!PyArg_ParseTuple(args, "O!nL", &PyList_Type, &nodes, &at, &limit)) {
        return NULL;
    }
    Buffer buffer = {NULL, 0, 0};
    int written = 1;
    for (; at >= 0 && at < PyList_GET_SIZE(nodes); at++) {
        PyObject *node = PyList_GET_ITEM(nodes, at);
        if (!is_node(node)) {
            PyErr_Format(PyExc_TypeError, "expected a node, got %R", node);
            written = -1;
            break;
        }
        long long id = number_of((NodeObject *)node);
        if (id >= limit) {
            break;
        }
        written = put_record(self, &buffer, (NodeObject *)node, id);
        if (written <= 0 || (written = journal_enter(self, id, self->next) < 0 ? -1 : 1) < 0) {
            break;
        }
        self->next++;
    }
    if (hand_over(self, &buffer) < 0 || written < 0) {
        return NULL;
    }
    return PyLong_FromSsize_t(at);
}

PyObject *
journal_put_entry(JournalObject *self, PyObject *payload)
{
    if (!PyBytes_Check(payload)) {
        return PyErr_Format(PyExc_TypeError, "expected bytes, got %R", payload);
    }
    Py_ssize_t length = PyBytes_GET_SIZE(payload);
    Buffer buffer = {NULL, 0, 0};
    if (reserve(&buffer, 1 + LONGEST + length) < 0) {
        return NULL;
    }
    put_byte(&buffer, RECORD_ENTRY);
    put_count(&buffer, (unsigned long long)length);
    memcpy(buffer.bytes + buffer.size, PyBytes_AS_STRING(payload), length);
    buffer.size += length;
    if (hand_over(self, &buffer) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyObject *
journal_put_inputs(JournalObject *self, PyObject *args)
{
    Py_ssize_t kind;
    PyObject *inputs;
    if (!PyArg_ParseTuple(args, "nO!", &kind, &PyTuple_Type, &inputs) ||
        check_nodes(NULL, &PyTuple_GET_ITEM(inputs, 0), PyTuple_GET_SIZE(inputs)) < 0) {
        return NULL;
    }
    Buffer buffer = {NULL, 0, 0};
    int failed = put_inputs(self, &buffer, kind, inputs);
    if (hand_over(self, &buffer) < 0 || failed < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* --- what is new --- */

typedef struct {
    long long id;
    NodeObject *node;
} Found;

typedef struct {
    Found *items;
    Py_ssize_t size, room;
} Stack;

static int
push(Stack *stack, NodeObject *node, long long id)
{
    if (stack->size == stack->room) {
        Py_ssize_t room = 2 * stack->room + 64;
        Found *items = PyMem_Realloc(stack->items, room * sizeof(Found));
        if (items == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        stack->items = items;
        stack->room = room;
    }
    stack->items[stack->size++] = (Found){id, node};
    return 0;
}

/* Put a node on the stack if it is neither in the file nor found; -1 is an error. */
static inline int
push_new(JournalObject *self, Stack *stack, PyObject *object, long long consumer, int *is_ordered)
{
    long long id = number_of((NodeObject *)object);
    *is_ordered &= id <= consumer;
    return journal_has(self, id) ? 0 : push(stack, (NodeObject *)object, id);
}

/* Find all that is on the stack and not in the file, and what that is made from. */
static int
find_new(JournalObject *self, Stack *stack, Stack *found, int *is_ordered)
{
    while (stack->size > 0) {
        Found top = stack->items[--stack->size];
        if (journal_has(self, top.id)) {
            continue;
        }
        if (journal_enter(self, top.id, PENDING) < 0 || push(found, top.node, top.id) < 0) {
            return -1;
        }
        PyObject *inputs = top.node->inputs;
        if (!PyTuple_Check(inputs)) { /* the call of an output */
            if (push_new(self, stack, inputs, top.id, is_ordered) < 0) {
                return -1;
            }
            continue;
        }
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs); i++) {
            if (push_new(self, stack, PyTuple_GET_ITEM(inputs, i), top.id, is_ordered) < 0) {
                return -1;
            }
        }
    }
    return 0;
}

static int
by_id(const void *left, const void *right)
{
    long long a = ((const Found *)left)->id, b = ((const Found *)right)->id;
    return (a > b) - (a < b);
}

/* Sort what was found by id. It was found from the newest to the oldest, nearly. */
static void
sort_found(Stack *found)
{
    Found *items = found->items;
    for (Py_ssize_t i = 0, j = found->size - 1; i < j; i++, j--) {
        Found swapped = items[i];
        items[i] = items[j];
        items[j] = swapped;
    }
    Py_ssize_t moves = 0, most = 8 * found->size;
    for (Py_ssize_t i = 1; i < found->size; i++) {
        Found moved = items[i];
        Py_ssize_t j = i;
        for (; j > 0 && items[j - 1].id > moved.id; j--) {
            items[j] = items[j - 1];
        }
        items[j] = moved;
        if ((moves += i - j) > most) {
            qsort(items, found->size, sizeof(Found), by_id);
            return;
        }
    }
}

PyObject *
journal_collect(JournalObject *self, PyObject *roots)
{
    if (!PyList_Check(roots)) {
        return PyErr_Format(PyExc_TypeError, "expected a list of nodes, got %R", roots);
    }
    Stack stack = {NULL, 0, 0}, found = {NULL, 0, 0};
    int is_ordered = 1, failed = 0;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(roots); i++) {
        PyObject *root = PyList_GET_ITEM(roots, i);
        failed = check_nodes(NULL, &root, 1) < 0 ||
                 push_new(self, &stack, root, number_of((NodeObject *)root), &is_ordered) < 0;
    }
    failed = failed || find_new(self, &stack, &found, &is_ordered) < 0;
    PyObject *list = NULL;
    if (!failed) {
        sort_found(&found);
        list = PyList_New(found.size);
        for (Py_ssize_t i = 0; list != NULL && i < found.size; i++) {
            PyList_SET_ITEM(list, i, Py_NewRef(found.items[i].node));
        }
    }
    PyMem_Free(stack.items);
    PyMem_Free(found.items);
    return list == NULL ? NULL : Py_BuildValue("NO", list, is_ordered ? Py_True : Py_False);
}
