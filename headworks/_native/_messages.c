/* The compiled form of two steps that a consumer takes for every message. `known_message` of
 * `TopicDecoders` makes a message with its event, from one of librdkafka's Python client.
 * `last_of_each` finds the last message of each partition.
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
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>
#include <structmember.h>

#ifndef HEADWORKS_SOURCE
#error "HEADWORKS_SOURCE is the SHA-256 of this file: compile it with hatch_build.py"
#endif

enum { HEADER_SIZE = 5 };  /* bytes: the magic byte 0, and a schema id */
enum read { TOPIC, VALUE, HEADERS, PARTITION, OFFSET, TIMESTAMP, KEY, READS };
enum field {
    EVENT, TOPIC_FIELD, PARTITION_FIELD, OFFSET_FIELD, TIMESTAMP_FIELD, KEY_FIELD, HEADERS_FIELD,
    SCHEMA_ID, SCHEMA_VERSION, FIELDS
};

static const char *const READ_NAMES[READS] = {
    "topic", "value", "headers", "partition", "offset", "timestamp", "key"
};
static const char *const FIELD_NAMES[FIELDS] = {
    "event", "topic", "partition", "offset", "timestamp", "key", "headers", "schema_id",
    "schema_version"
};

typedef struct {
    PyObject_HEAD
    PyTypeObject *raw_class, *message_class;
    PyCFunction reads[READS];    /* the methods of `raw_class` */
    Py_ssize_t slots[FIELDS];    /* of `message_class` */
    PyObject *known;             /* (decode, schema id, version) by header, by topic */
    PyObject *python;            /* takes the messages that are declined */
    PyObject *start;             /* HEADER_SIZE */
    PyObject *nothing;           /* the headers of a message without headers */
    PyObject *topic, *entry;     /* of the last message; NULL before it */
    char header[HEADER_SIZE];
} MessageReader;

static inline PyObject *read_raw(const MessageReader *self, enum read what, PyObject *raw)
{
    return self->reads[what](raw, NULL);
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
    PyObject *pair = read_raw(self, TIMESTAMP, raw), *found = NULL;
    if (pair != NULL && PyTuple_CheckExact(pair) && PyTuple_GET_SIZE(pair) == 2)
        found = Py_NewRef(PyTuple_GET_ITEM(pair, 1));
    Py_XDECREF(pair);
    return found;
}

static PyObject *read_headers(const MessageReader *self, PyObject *raw)
{
    PyObject *headers = read_raw(self, HEADERS, raw), *found = NULL;
    if (headers == Py_None)
        found = Py_NewRef(self->nothing);
    else if (headers != NULL)
        found = PySequence_Tuple(headers);
    Py_XDECREF(headers);
    return found;
}

/* Make the message of an event; NULL, perhaps without an error, if that fails. */
static PyObject *make_message(
    const MessageReader *self, PyObject *raw, PyObject *topic, PyObject *event, PyObject *entry)
{
    PyObject *const fields[FIELDS] = {
        Py_NewRef(event), Py_NewRef(topic), read_raw(self, PARTITION, raw), read_raw(self, OFFSET, raw),
        read_timestamp(self, raw), read_raw(self, KEY, raw), read_headers(self, raw),
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
    PyObject *made = NULL, *topic = read_raw(self, TOPIC, raw), *value = read_raw(self, VALUE, raw);
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
    if (Py_IS_TYPE(given[0], self->raw_class)) {
        PyObject *made = read_ordinary(self, given[0]), *error = PyErr_Occurred();
        if (made != NULL || (error != NULL && (PyErr_ExceptionMatches(PyExc_MemoryError)
                                               || !PyErr_ExceptionMatches(PyExc_Exception))))
            return made;
        PyErr_Clear();
    }
    return PyObject_Vectorcall(self->python, given, 1, NULL);
}

/* ---- making a reader ---- */

static int find_reads(MessageReader *self)
{
    for (int i = 0; i < READS; i++) {
        PyObject *found = PyObject_GetAttrString((PyObject *)self->raw_class, READ_NAMES[i]);
        if (found == NULL)
            return -1;
        /* The class keeps its methods, and a class of C cannot be changed. */
        const int is = Py_IS_TYPE(found, &PyMethodDescr_Type)
            && PyDescr_TYPE(found) == self->raw_class
            && ((PyMethodDescrObject *)found)->d_method->ml_flags == METH_NOARGS;
        if (is)
            self->reads[i] = ((PyMethodDescrObject *)found)->d_method->ml_meth;
        Py_DECREF(found);
        if (!is || PyType_HasFeature(self->raw_class, Py_TPFLAGS_HEAPTYPE)) {
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
    self->raw_class = (PyTypeObject *)Py_NewRef(raw);
    self->message_class = (PyTypeObject *)Py_NewRef(message);
    self->known = Py_NewRef(known);
    self->python = Py_NewRef(python);
    self->start = PyLong_FromLong(HEADER_SIZE);
    self->nothing = PyTuple_New(0);
    if (self->start == NULL || self->nothing == NULL || find_reads(self) < 0 || find_slots(self) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int MessageReader_traverse(MessageReader *self, visitproc visit, void *arg)
{
    Py_VISIT(self->raw_class);
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
    Py_XDECREF(self->raw_class);
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

/* ---- the last message of each partition ---- */

/* Return (topic, partition) of a message: `before`, if that is the same one. */
static PyObject *place_of(PyObject *raw, PyObject *before)
{
    static PyObject *topic_name, *partition_name;  /* made once, and kept */
    if (topic_name == NULL)
        topic_name = PyUnicode_InternFromString("topic");
    if (partition_name == NULL)
        partition_name = PyUnicode_InternFromString("partition");
    if (topic_name == NULL || partition_name == NULL)
        return NULL;
    PyObject *topic = PyObject_CallMethodNoArgs(raw, topic_name), *place = NULL;
    PyObject *partition = topic == NULL ? NULL : PyObject_CallMethodNoArgs(raw, partition_name);
    if (partition != NULL) {
        int is_same = before != NULL;
        if (is_same)
            is_same = PyObject_RichCompareBool(PyTuple_GET_ITEM(before, 1), partition, Py_EQ);
        if (is_same > 0)
            is_same = PyObject_RichCompareBool(PyTuple_GET_ITEM(before, 0), topic, Py_EQ);
        if (is_same >= 0)
            place = is_same ? Py_NewRef(before) : PyTuple_Pack(2, topic, partition);
    }
    Py_XDECREF(topic);
    Py_XDECREF(partition);
    return place;
}

static PyObject *last_of_each(PyObject *Py_UNUSED(module), PyObject *given)
{
    if (!PyList_CheckExact(given)) {
        PyErr_SetString(PyExc_TypeError, "last_of_each() takes a list of messages");
        return NULL;
    }
    PyObject *last = PyDict_New(), *place = NULL, *raw = NULL;
    int done = last == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; done == 0 && i < PyList_GET_SIZE(given); i++) {
        PyObject *next = Py_NewRef(PyList_GET_ITEM(given, i));
        PyObject *there = place_of(next, place);
        if (there == NULL || (place != NULL && there != place))
            done = there == NULL ? -1 : PyDict_SetItem(last, place, raw);
        Py_XSETREF(place, there);
        Py_XSETREF(raw, next);
    }
    if (done == 0 && place != NULL)
        done = PyDict_SetItem(last, place, raw);
    Py_XDECREF(place);
    Py_XDECREF(raw);
    if (done < 0)
        Py_CLEAR(last);
    return last;
}

static PyMethodDef functions[] = {
    {"last_of_each", last_of_each, METH_O, "The last message of a list by topic and partition."},
    {NULL, NULL, 0, NULL},
};

static int fill_module(PyObject *module)
{
    if (PyModule_AddFunctions(module, functions) < 0 || PyModule_AddType(module, &MessageReader_Type) < 0)
        return -1;
    return PyModule_AddStringConstant(module, "SOURCE", HEADWORKS_SOURCE);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "headworks._native._messages",
    .m_doc = "The compiled form of what makes a message with its event.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__messages(void)
{
    return PyModuleDef_Init(&definition);
}
