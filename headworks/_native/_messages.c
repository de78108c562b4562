/* The compiled form of what a consumer does for every message. `MessageReader` is `known_message` of
 * `TopicDecoders`: it makes a message with its event, from one of librdkafka's Python client.
 * `CompiledStep` is the step from one message to the next, if that has been fetched already.
 *
 * Rules:
 *
 * - The Python form defines the result. It takes every message that is not exactly ordinary: one of
 *   another class or without a value, an unknown header, an event that does not decode.
 * - A message is made whole or not at all. Nobody sees it before all of its slots are filled.
 * - The client's own methods are called, but only those that take no argument. Nothing is read from
 *   the client's private structures.
 * - An entry of `known` never changes once it is there, because an id never changes its meaning. So
 *   the entry of the last message is kept beside its topic and header.
 * - The step takes a message while no other thread uses the client, and runs no Python meanwhile. So
 *   the interpreter's lock suffices for it. Any other thread first counts itself in `users`.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>
#include <structmember.h>

#ifndef HEADWORKS_SOURCE
#error "HEADWORKS_SOURCE is the SHA-256 of this file: compile it with hatch_build.py"
#endif

enum { HEADER_SIZE = 5 };  /* bytes: the magic byte 0, and a schema id */
enum read { TOPIC, VALUE, HEADERS, PARTITION, OFFSET, TIMESTAMP, KEY, ERROR, READS };
enum field {
    EVENT, TOPIC_FIELD, PARTITION_FIELD, OFFSET_FIELD, TIMESTAMP_FIELD, KEY_FIELD, HEADERS_FIELD,
    SCHEMA_ID, SCHEMA_VERSION, FIELDS
};

static const char *const READ_NAMES[READS] = {
    "topic", "value", "headers", "partition", "offset", "timestamp", "key", "error"
};
static const char *const FIELD_NAMES[FIELDS] = {
    "event", "topic", "partition", "offset", "timestamp", "key", "headers", "schema_id",
    "schema_version"
};

struct raw_class {
    PyTypeObject *type;
    PyCFunction reads[READS];    /* its methods */
};

typedef struct {
    PyObject_HEAD
    struct raw_class raw;
    PyTypeObject *message_class;
    Py_ssize_t slots[FIELDS];    /* of `message_class` */
    PyObject *known;             /* (decode, schema id, version) by header, by topic */
    PyObject *python;            /* takes the messages that are declined */
    PyObject *start;             /* HEADER_SIZE */
    PyObject *nothing;           /* the headers of a message without headers */
    PyObject *topic, *entry;     /* of the last message; NULL before it */
    char header[HEADER_SIZE];
} MessageReader;

static inline PyObject *read_raw(const struct raw_class *of, enum read what, PyObject *raw)
{
    return of->reads[what](raw, NULL);
}

/* Return the entry of a topic and header, borrowed from `self`; NULL, without an error, if it has
 * none. */
static PyObject *find_entry(MessageReader *self, PyObject *topic, const char *header)
{
    if (self->entry != NULL && memcmp(header, self->header, HEADER_SIZE) == 0
        && PyUnicode_Compare(topic, self->topic) == 0)
        return self->entry;
    PyObject *by_header = PyDict_GetItemWithError(self->known, topic);
    PyObject *key = by_header == NULL ? NULL : PyBytes_FromStringAndSize(header, HEADER_SIZE);
    PyObject *found = key == NULL || !PyDict_CheckExact(by_header)
        ? NULL : PyDict_GetItemWithError(by_header, key);
    Py_XDECREF(key);
    if (found == NULL || !PyTuple_CheckExact(found) || PyTuple_GET_SIZE(found) != 3) {
        PyErr_Clear();
        return NULL;
    }
    Py_XSETREF(self->topic, Py_NewRef(topic));
    Py_XSETREF(self->entry, Py_NewRef(found));
    memcpy(self->header, header, HEADER_SIZE);
    return found;
}

static PyObject *read_timestamp(const MessageReader *self, PyObject *raw)
{
    PyObject *pair = read_raw(&self->raw, TIMESTAMP, raw), *found = NULL;
    if (pair != NULL && PyTuple_CheckExact(pair) && PyTuple_GET_SIZE(pair) == 2)
        found = Py_NewRef(PyTuple_GET_ITEM(pair, 1));
    Py_XDECREF(pair);
    return found;
}

/* For a name that is not UTF-8 the client sets an error, and returns a pair with NULL in its place;
 * when it is asked again, it returns that alone. */
static int are_whole(PyObject *headers)
{
    if (PyErr_Occurred() || !PyList_CheckExact(headers))
        return 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(headers); i++) {
        PyObject *pair = PyList_GET_ITEM(headers, i);
        if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2 || PyTuple_GET_ITEM(pair, 0) == NULL)
            return 0;
    }
    return 1;
}

static PyObject *read_headers(const MessageReader *self, PyObject *raw)
{
    PyObject *headers = read_raw(&self->raw, HEADERS, raw), *found = NULL;
    if (headers == Py_None)
        found = Py_NewRef(self->nothing);
    else if (headers != NULL && are_whole(headers))
        found = PySequence_Tuple(headers);
    Py_XDECREF(headers);
    return found;
}

/* Make the message of an event; NULL, perhaps without an error, if that fails. */
static PyObject *make_message(
    const MessageReader *self, PyObject *raw, PyObject *topic, PyObject *event, PyObject *entry)
{
    PyObject *const fields[FIELDS] = {
        Py_NewRef(event), Py_NewRef(topic), read_raw(&self->raw, PARTITION, raw), read_raw(&self->raw, OFFSET, raw),
        read_timestamp(self, raw), read_raw(&self->raw, KEY, raw), read_headers(self, raw),
        Py_NewRef(PyTuple_GET_ITEM(entry, 1)), Py_NewRef(PyTuple_GET_ITEM(entry, 2))
    };
    int is_whole = 1;
    for (int i = 0; i < FIELDS; i++)
        is_whole = is_whole && fields[i] != NULL;
    PyObject *made = is_whole ? self->message_class->tp_alloc(self->message_class, 0) : NULL;
    for (int i = 0; i < FIELDS; i++) {
        if (made != NULL)
            *(PyObject **)((char *)made + self->slots[i]) = fields[i];
        else
            Py_XDECREF(fields[i]);
    }
    return made;
}

/* Return the message of a raw one; NULL, perhaps without an error, if it is not ordinary. */
static PyObject *read_ordinary(MessageReader *self, PyObject *raw)
{
    PyObject *made = NULL, *topic = read_raw(&self->raw, TOPIC, raw), *value = read_raw(&self->raw, VALUE, raw);
    if (topic != NULL && PyUnicode_CheckExact(topic) && value != NULL && PyBytes_CheckExact(value)
        && PyBytes_GET_SIZE(value) >= HEADER_SIZE) {
        PyObject *entry = find_entry(self, topic, PyBytes_AS_STRING(value));
        if (entry != NULL) {
            PyObject *const given[2] = {value, self->start};
            Py_INCREF(entry);                   /* a decoding function may read messages too */
            Py_SETREF(topic, Py_NewRef(self->topic));  /* the same object for all messages of a topic */
            PyObject *event = PyObject_Vectorcall(PyTuple_GET_ITEM(entry, 0), given, 2, NULL);
            if (event != NULL)
                made = make_message(self, raw, topic, event, entry);
            Py_XDECREF(event);
            Py_DECREF(entry);
        }
    }
    Py_XDECREF(topic);
    Py_XDECREF(value);
    return made;
}

static PyObject *MessageReader_read(
    MessageReader *self, PyObject *const *given, Py_ssize_t count)
{
    if (count != 1) {
        PyErr_SetString(PyExc_TypeError, "read() takes a message");
        return NULL;
    }
    if (Py_IS_TYPE(given[0], self->raw.type)) {
        PyObject *made = read_ordinary(self, given[0]), *error = PyErr_Occurred();
        if (made != NULL || (error != NULL && (PyErr_ExceptionMatches(PyExc_MemoryError)
                                               || !PyErr_ExceptionMatches(PyExc_Exception))))
            return made;
        PyErr_Clear();
    }
    return PyObject_Vectorcall(self->python, given, 1, NULL);
}

/* ---- making a reader ---- */

static int find_reads(struct raw_class *of)
{
    for (int i = 0; i < READS; i++) {
        PyObject *found = PyObject_GetAttrString((PyObject *)of->type, READ_NAMES[i]);
        if (found == NULL)
            return -1;
        /* The class keeps its methods, and a class of C cannot be changed. */
        const int is = Py_IS_TYPE(found, &PyMethodDescr_Type)
            && PyDescr_TYPE(found) == of->type
            && ((PyMethodDescrObject *)found)->d_method->ml_flags == METH_NOARGS;
        if (is)
            of->reads[i] = ((PyMethodDescrObject *)found)->d_method->ml_meth;
        Py_DECREF(found);
        if (!is || PyType_HasFeature(of->type, Py_TPFLAGS_HEAPTYPE)) {
            PyErr_Format(PyExc_TypeError, "%s is not a method of C without arguments", READ_NAMES[i]);
            return -1;
        }
    }
    return 0;
}

static int find_slots(MessageReader *self)
{
    if (self->message_class->tp_new != PyBaseObject_Type.tp_new) {
        PyErr_SetString(PyExc_TypeError, "the class makes its objects in its own way");
        return -1;
    }
    for (int i = 0; i < FIELDS; i++) {
        PyObject *found = PyObject_GetAttrString((PyObject *)self->message_class, FIELD_NAMES[i]);
        if (found == NULL)
            return -1;
        const int is = Py_IS_TYPE(found, &PyMemberDescr_Type)
            && PyDescr_TYPE(found) == self->message_class
            && ((PyMemberDescrObject *)found)->d_member->type == T_OBJECT_EX;
        if (is)
            self->slots[i] = ((PyMemberDescrObject *)found)->d_member->offset;
        Py_DECREF(found);
        if (!is) {
            PyErr_Format(PyExc_TypeError, "%s is not a plain slot", FIELD_NAMES[i]);
            return -1;
        }
    }
    return 0;
}

static PyObject *MessageReader_new(PyTypeObject *type, PyObject *given, PyObject *named)
{
    static char *names[] = {"raw", "message", "known", "python", NULL};
    PyObject *raw, *message, *known, *python;
    if (!PyArg_ParseTupleAndKeywords(
            given, named, "O!O!O!O", names, &PyType_Type, &raw, &PyType_Type, &message,
            &PyDict_Type, &known, &python))
        return NULL;
    MessageReader *self = (MessageReader *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->raw.type = (PyTypeObject *)Py_NewRef(raw);
    self->message_class = (PyTypeObject *)Py_NewRef(message);
    self->known = Py_NewRef(known);
    self->python = Py_NewRef(python);
    self->start = PyLong_FromLong(HEADER_SIZE);
    self->nothing = PyTuple_New(0);
    if (self->start == NULL || self->nothing == NULL || find_reads(&self->raw) < 0 || find_slots(self) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int MessageReader_traverse(MessageReader *self, visitproc visit, void *arg)
{
    Py_VISIT(self->raw.type);
    Py_VISIT(self->message_class);
    Py_VISIT(self->known);
    Py_VISIT(self->python);
    Py_VISIT(self->entry);
    return 0;
}

static int MessageReader_clear(MessageReader *self)
{
    Py_CLEAR(self->entry);
    return 0;
}

static void MessageReader_dealloc(MessageReader *self)
{
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->raw.type);
    Py_XDECREF(self->message_class);
    Py_XDECREF(self->known);
    Py_XDECREF(self->python);
    Py_XDECREF(self->start);
    Py_XDECREF(self->nothing);
    Py_XDECREF(self->topic);
    Py_XDECREF(self->entry);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef MessageReader_methods[] = {
    {"read", (PyCFunction)(void (*)(void))MessageReader_read, METH_FASTCALL,
     "The message of a raw one, or what the Python form returns for it."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject MessageReader_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "headworks._native._messages.MessageReader",
    .tp_doc = "Makes the messages of one thread.",
    .tp_basicsize = sizeof(MessageReader),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = MessageReader_new,
    .tp_dealloc = (destructor)MessageReader_dealloc,
    .tp_traverse = (traverseproc)MessageReader_traverse,
    .tp_clear = (inquiry)MessageReader_clear,
    .tp_methods = MessageReader_methods,
};

/* ---- the step from one message to the next ---- */

typedef struct {
    PyObject_HEAD
    struct raw_class raw;
    PyObject *last, *current;    /* see the Python form: `PythonStep` */
    PyObject *fetched, *waiting; /* deques: the next messages, and calls that come before them */
    PyObject *put_back, *beside;
    PyObject *read, *ended, *outcome, *count;
    PyObject *consume;           /* counts further messages: `count` returned it last; or NULL */
    PyObject *counted_topic;     /* of the message that it was returned for, and the message's header */
    char counted_header[HEADER_SIZE];
    PyObject *processed;         /* a list: the last messages of partitions, in their order */
    unsigned long long asked;
    long users;
    char is_left, is_stopped;
} CompiledStep;

static PyObject *popleft_name;   /* made once, and kept */

/* Return whether both are of the same partition, as far as that can be seen without Python. */
static int is_same_place(const CompiledStep *self, PyObject *one, PyObject *other)
{
    if (!Py_IS_TYPE(one, self->raw.type) || !Py_IS_TYPE(other, self->raw.type))
        return 0;
    int is_same = 1;
    for (int i = 0; is_same && i < 2; i++) {
        const enum read what = i == 0 ? PARTITION : TOPIC;
        PyObject *a = read_raw(&self->raw, what, one), *b = read_raw(&self->raw, what, other);
        is_same = a != NULL && b != NULL;
        if (is_same && what == TOPIC)
            is_same = PyUnicode_CheckExact(a) && PyUnicode_CheckExact(b) && PyUnicode_Compare(a, b) == 0;
        else if (is_same)
            is_same = PyLong_CheckExact(a) && PyLong_CheckExact(b)
                && PyObject_RichCompareBool(a, b, Py_EQ) == 1;
        Py_XDECREF(a);
        Py_XDECREF(b);
    }
    PyErr_Clear();
    return is_same;
}

/* Note a message that is processed, unless its partition was lost. */
static int mark(CompiledStep *self, PyObject *raw)
{
    if (self->beside != NULL && self->beside != Py_None) {
        PyObject *done = PyObject_CallOneArg(self->beside, raw);
        Py_XDECREF(done);
        return done == NULL ? -1 : 0;
    }
    if (self->current != raw)
        return 0;
    const Py_ssize_t count = PyList_GET_SIZE(self->processed);
    if (count > 0 && is_same_place(self, raw, PyList_GET_ITEM(self->processed, count - 1))) {
        if (PyList_SetItem(self->processed, count - 1, Py_NewRef(raw)) < 0)
            return -1;
    } else if (PyList_Append(self->processed, raw) < 0) {
        return -1;
    }
    Py_XSETREF(self->current, Py_NewRef(Py_None));
    return 0;
}

static PyObject *CompiledStep_mark(CompiledStep *self, PyObject *raw)
{
    return mark(self, raw) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *CompiledStep_take_processed(CompiledStep *self, PyObject *Py_UNUSED(nothing))
{
    PyObject *empty = PyList_New(0), *found = self->processed;
    if (empty == NULL)
        return NULL;
    self->processed = empty;
    return found;
}

/* Return the value of a message if it has a header, else NULL without an error. */
static PyObject *read_framed(const CompiledStep *self, PyObject *raw)
{
    PyObject *value = read_raw(&self->raw, VALUE, raw);
    if (value != NULL && PyBytes_CheckExact(value) && PyBytes_GET_SIZE(value) >= HEADER_SIZE)
        return value;
    Py_XDECREF(value);
    PyErr_Clear();
    return NULL;
}

/* Return whether `consume` counted a message; it takes those with the same topic and header. */
static int consume(CompiledStep *self, PyObject *raw)
{
    if (self->consume == NULL || !Py_IS_TYPE(raw, self->raw.type))
        return 0;
    PyObject *value = read_framed(self, raw);
    if (value == NULL)
        return 0;
    PyObject *topic = read_raw(&self->raw, TOPIC, raw), *pair = NULL, *size = NULL, *done = NULL;
    if (topic != NULL && PyUnicode_CheckExact(topic)
        && memcmp(PyBytes_AS_STRING(value), self->counted_header, HEADER_SIZE) == 0
        && PyUnicode_Compare(topic, self->counted_topic) == 0)
        pair = read_raw(&self->raw, TIMESTAMP, raw);
    if (pair != NULL && PyTuple_CheckExact(pair) && PyTuple_GET_SIZE(pair) == 2)
        size = PyLong_FromSsize_t(PyBytes_GET_SIZE(value));
    if (size != NULL) {
        PyObject *const given[2] = {PyTuple_GET_ITEM(pair, 1), size};
        done = PyObject_Vectorcall(self->consume, given, 2, NULL);
    }
    const int is_counted = done == Py_True;
    Py_XDECREF(done);
    Py_XDECREF(size);
    Py_XDECREF(pair);
    Py_XDECREF(topic);
    Py_DECREF(value);
    PyErr_Clear();  /* `count` takes the message then, and raises if it must */
    return is_counted;
}

/* Count a message that has ended. */
static int count_ended(CompiledStep *self, PyObject *raw)
{
    if (consume(self, raw))
        return 0;
    PyObject *found = PyObject_CallFunctionObjArgs(self->count, raw, self->outcome, NULL);
    if (found == NULL)
        return -1;
    Py_CLEAR(self->consume);
    if (found != Py_None && Py_IS_TYPE(raw, self->raw.type)) {
        PyObject *topic = read_raw(&self->raw, TOPIC, raw), *value = read_framed(self, raw);
        if (topic != NULL && PyUnicode_CheckExact(topic) && value != NULL) {
            self->consume = Py_NewRef(found);
            Py_XSETREF(self->counted_topic, Py_NewRef(topic));
            memcpy(self->counted_header, PyBytes_AS_STRING(value), HEADER_SIZE);
        }
        Py_XDECREF(topic);
        Py_XDECREF(value);
        PyErr_Clear();
    }
    Py_DECREF(found);
    return 0;
}

/* End the message that the application had; count it as `outcome`. */
static int end_last(CompiledStep *self)
{
    PyObject *last = self->last;
    self->last = Py_NewRef(Py_None);
    PyObject *before = PyDict_GetItemWithError(self->ended, self->outcome);
    PyObject *one = before == NULL ? NULL : PyLong_FromLong(1);
    PyObject *after = one == NULL ? NULL : PyNumber_Add(before, one);
    int done = after == NULL ? -1 : PyDict_SetItem(self->ended, self->outcome, after);
    Py_XDECREF(one);
    Py_XDECREF(after);
    if (done == 0 && self->count != Py_None)
        done = count_ended(self, last);
    if (done == 0)
        done = mark(self, last);
    Py_DECREF(last);
    if (done < 0 && !PyErr_Occurred())
        PyErr_SetString(PyExc_KeyError, "an outcome that is not counted");
    return done;
}

/* Take the next message; NULL, perhaps with an error, if it is not there or not ordinary. */
static PyObject *take(CompiledStep *self)
{
    if (self->users || self->is_left)
        return NULL;
    if (PyObject_Size(self->waiting) != 0 || PyObject_Size(self->fetched) <= 0)
        return NULL;
    PyObject *raw = PySequence_GetItem(self->fetched, 0), *error = NULL;
    if (raw != NULL && Py_IS_TYPE(raw, self->raw.type))
        error = read_raw(&self->raw, ERROR, raw);
    const int is_ordinary = error == Py_None;
    Py_XDECREF(error);
    Py_XDECREF(raw);
    if (!is_ordinary)
        return NULL;
    raw = PyObject_CallMethodNoArgs(self->fetched, popleft_name);
    if (raw != NULL)
        Py_XSETREF(self->current, Py_NewRef(raw));
    return raw;
}

/* Return the message of a raw one, which is then the last one; NULL, perhaps without an error, if it
 * was put back. */
static PyObject *hand_out(CompiledStep *self, PyObject *raw)
{
    PyObject *made = PyObject_CallOneArg(self->read, raw);
    if (made != NULL && made != Py_None) {
        Py_XSETREF(self->last, Py_NewRef(raw));
        return made;
    }
    Py_XDECREF(made);
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *done = PyObject_CallOneArg(self->put_back, raw);
    Py_XDECREF(done);
    if (done != NULL) {
        PyErr_Restore(type, value, trace);
    } else {  /* the newer error counts */
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(trace);
    }
    return NULL;
}

/* Return the next message; NULL, perhaps without an error, if that needs more than this. */
static PyObject *next_message(CompiledStep *self)
{
    if (self->read == Py_None) {
        PyErr_SetString(PyExc_RuntimeError, "the step is not connected");
        return NULL;
    }
    if (self->last != NULL && self->last != Py_None && end_last(self) < 0)
        return NULL;
    self->asked++;
    PyObject *raw = take(self);
    if (raw == NULL)
        return NULL;
    PyObject *made = hand_out(self, raw);
    Py_DECREF(raw);
    return made;
}

static PyObject *CompiledStep_next(CompiledStep *self, PyObject *Py_UNUSED(nothing))
{
    PyObject *made = next_message(self);
    return made != NULL || PyErr_Occurred() ? made : Py_NewRef(Py_None);
}

static PyObject *CompiledStep_iternext(CompiledStep *self)
{
    return self->is_stopped ? NULL : next_message(self);
}

static PyObject *CompiledStep_connect(CompiledStep *self, PyObject *given)
{
    PyObject *read, *ended, *outcome, *count;
    if (!PyArg_ParseTuple(given, "OO!OO", &read, &PyDict_Type, &ended, &outcome, &count))
        return NULL;
    Py_XSETREF(self->read, Py_NewRef(read));
    Py_XSETREF(self->ended, Py_NewRef(ended));
    Py_XSETREF(self->outcome, Py_NewRef(outcome));
    Py_XSETREF(self->count, Py_NewRef(count));
    Py_CLEAR(self->consume);
    return Py_NewRef(Py_None);
}

static PyObject *CompiledStep_new(PyTypeObject *type, PyObject *given, PyObject *named)
{
    static char *names[] = {"raw", "fetched", "waiting", "put_back", NULL};
    PyObject *raw, *fetched, *waiting, *put_back;
    if (!PyArg_ParseTupleAndKeywords(
            given, named, "O!OOO", names, &PyType_Type, &raw, &fetched, &waiting, &put_back))
        return NULL;
    CompiledStep *self = (CompiledStep *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->raw.type = (PyTypeObject *)Py_NewRef(raw);
    self->fetched = Py_NewRef(fetched);
    self->waiting = Py_NewRef(waiting);
    self->put_back = Py_NewRef(put_back);
    PyObject **const unset[] = {
        &self->last, &self->current, &self->beside, &self->read, &self->ended, &self->outcome,
        &self->count
    };
    for (size_t i = 0; i < sizeof unset / sizeof *unset; i++)
        *unset[i] = Py_NewRef(Py_None);
    self->processed = PyList_New(0);
    if (self->processed == NULL || find_reads(&self->raw) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int CompiledStep_traverse(CompiledStep *self, visitproc visit, void *arg)
{
    Py_VISIT(self->raw.type);
    Py_VISIT(self->last);
    Py_VISIT(self->current);
    Py_VISIT(self->fetched);
    Py_VISIT(self->waiting);
    Py_VISIT(self->put_back);
    Py_VISIT(self->beside);
    Py_VISIT(self->read);
    Py_VISIT(self->ended);
    Py_VISIT(self->count);
    Py_VISIT(self->consume);
    Py_VISIT(self->processed);
    return 0;
}

/* Let go of what may lead back here. A later call finds it not connected. */
static int CompiledStep_clear(CompiledStep *self)
{
    PyObject **const kept[] = {&self->put_back, &self->beside, &self->read, &self->count};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (*kept[i] != NULL)
            Py_XSETREF(*kept[i], Py_NewRef(Py_None));
    Py_CLEAR(self->consume);
    return 0;
}

static void CompiledStep_dealloc(CompiledStep *self)
{
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->raw.type);
    Py_XDECREF(self->last);
    Py_XDECREF(self->current);
    Py_XDECREF(self->fetched);
    Py_XDECREF(self->waiting);
    Py_XDECREF(self->put_back);
    Py_XDECREF(self->beside);
    Py_XDECREF(self->read);
    Py_XDECREF(self->ended);
    Py_XDECREF(self->outcome);
    Py_XDECREF(self->count);
    Py_XDECREF(self->consume);
    Py_XDECREF(self->counted_topic);
    Py_XDECREF(self->processed);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef CompiledStep_methods[] = {
    {"connect", (PyCFunction)CompiledStep_connect, METH_VARARGS,
     "Set what reads a message, the counts by outcome, the outcome, and what counts a message."},
    {"mark", (PyCFunction)CompiledStep_mark, METH_O, "Note a message that is processed."},
    {"take_processed", (PyCFunction)CompiledStep_take_processed, METH_NOARGS,
     "The messages whose offsets are to be stored, in their order; they are forgotten here."},
    {"next", (PyCFunction)CompiledStep_next, METH_NOARGS,
     "The next message, after the last one has ended; None if that needs more than this."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef CompiledStep_members[] = {
    {"last", T_OBJECT_EX, offsetof(CompiledStep, last), 0, NULL},
    {"current", T_OBJECT_EX, offsetof(CompiledStep, current), 0, NULL},
    {"beside", T_OBJECT_EX, offsetof(CompiledStep, beside), 0, NULL},
    {"asked", T_ULONGLONG, offsetof(CompiledStep, asked), 0, NULL},
    {"users", T_LONG, offsetof(CompiledStep, users), 0, NULL},
    {"is_left", T_BOOL, offsetof(CompiledStep, is_left), 0, NULL},
    {"is_stopped", T_BOOL, offsetof(CompiledStep, is_stopped), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject CompiledStep_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "headworks._native._messages.CompiledStep",
    .tp_doc = "The message that the application has, and the step to the next one.",
    .tp_basicsize = sizeof(CompiledStep),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = CompiledStep_new,
    .tp_dealloc = (destructor)CompiledStep_dealloc,
    .tp_traverse = (traverseproc)CompiledStep_traverse,
    .tp_clear = (inquiry)CompiledStep_clear,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = (iternextfunc)CompiledStep_iternext,
    .tp_methods = CompiledStep_methods,
    .tp_members = CompiledStep_members,
};

static int fill_module(PyObject *module)
{
    if (popleft_name == NULL)
        popleft_name = PyUnicode_InternFromString("popleft");
    if (popleft_name == NULL || PyModule_AddType(module, &MessageReader_Type) < 0
        || PyModule_AddType(module, &CompiledStep_Type) < 0)
        return -1;
    return PyModule_AddStringConstant(module, "SOURCE", HEADWORKS_SOURCE);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "headworks._native._messages",
    .m_doc = "The compiled form of what a consumer does for every message.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__messages(void)
{
    return PyModuleDef_Init(&definition);
}
