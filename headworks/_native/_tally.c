/* The compiled form of headworks/_audit_counting/tally.py: the counting steps of every message.
 *
 * Rules:
 *
 * - The Python class defines the result: the same counts, in the same words, at the same moment.
 * - A step runs no Python and does not release the interpreter's lock, so it is atomic.
 * - The word belongs to a map that its owner closes. An attached tally holds a buffer of the map: an
 *   owner that forgets to detach it gets a BufferError, and nothing is written outside a map.
 * - `attempt` declines a time that is not exactly an int of 64 bits, and a value that is not
 *   exactly bytes. Python then counts the message or reports the mistake.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <structmember.h>

#ifndef HEADWORKS_SOURCE
#error "HEADWORKS_SOURCE is the SHA-256 of this file: compile it with hatch_build.py"
#endif

typedef struct {
    PyObject_HEAD
    Py_buffer view;              /* the words of the file; its `obj` is NULL while detached */
    uint64_t *word;              /* the word of `attempted`; NULL while detached */
    Py_ssize_t at;
    long long start, end;
    unsigned long long attempted, delivered, bytes;
    PyObject *undelivered;       /* the delivery callback of failed messages */
} Tally;

/* Return whether `value` is exactly an int (no bool) of 64 bits, and its number. */
static inline int is_long(PyObject *value, long long *number)
{
    int overflow = 0;
    if (!PyLong_CheckExact(value))
        return 0;
    *number = PyLong_AsLongLongAndOverflow(value, &overflow);
    return !overflow;
}

static int takes_two(const char *name, Py_ssize_t count)
{
    if (count != 2)
        PyErr_Format(PyExc_TypeError, "%s takes 2 arguments, not %zd", name, count);
    return count == 2;
}

/* ---- the two steps ---- */

/* Count an attempt; return 0 if the message is not of this window. */
static inline int count_attempt(Tally *self, PyObject *timestamp, long long size)
{
    long long time;
    if (self->word == NULL || !is_long(timestamp, &time) || time < self->start || time >= self->end)
        return 0;
    *self->word = ++self->attempted;
    self->bytes += (unsigned long long)size;
    return 1;
}

static PyObject *Tally_attempt(Tally *self, PyObject *const *given, Py_ssize_t count)
{
    long long size;
    if (!takes_two("attempt", count))
        return NULL;
    if (!is_long(given[1], &size) || size < 0)
        Py_RETURN_FALSE;
    return PyBool_FromLong(count_attempt(self, given[0], size));
}

static PyObject *Tally_report(Tally *self, PyObject *const *given, Py_ssize_t count)
{
    if (!takes_two("report", count))
        return NULL;
    if (given[0] != Py_None)
        return PyObject_Vectorcall(self->undelivered, given, 2, NULL);
    self->delivered++;
    Py_RETURN_NONE;
}

/* ---- attaching ---- */

static void detach(Tally *self)
{
    self->word = NULL;
    PyBuffer_Release(&self->view);
}

static PyObject *Tally_attach(Tally *self, PyObject *words)
{
    Py_buffer view;
    if (words == Py_None) {
        detach(self);
        Py_RETURN_NONE;
    }
    if (PyObject_GetBuffer(words, &view, PyBUF_WRITABLE) < 0)
        return NULL;
    if (view.itemsize != sizeof *self->word || self->at >= view.len / view.itemsize) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "these are not the words of a file that has this tally");
        return NULL;
    }
    Py_buffer before = self->view;
    self->view = view;
    self->word = (uint64_t *)view.buf + self->at;
    PyBuffer_Release(&before); /* nothing happens if there was none */
    Py_RETURN_NONE;
}

static PyObject *Tally_new(PyTypeObject *type, PyObject *given, PyObject *named)
{
    static char *names[] = {"at", "start", "end", "undelivered", NULL};
    Py_ssize_t at;
    PyObject *start, *end, *undelivered;
    if (!PyArg_ParseTupleAndKeywords(
            given, named, "nO!O!O", names, &at, &PyLong_Type, &start, &PyLong_Type, &end,
            &undelivered))
        return NULL;
    if (at < 0) {
        PyErr_SetString(PyExc_ValueError, "no word has a number below 0");
        return NULL;
    }
    Tally *self = (Tally *)type->tp_alloc(type, 0); /* all other members are 0 */
    if (self == NULL)
        return NULL;
    self->at = at;
    if (!is_long(start, &self->start) || !is_long(end, &self->end))
        self->start = self->end = 0; /* no message is in such a window */
    self->undelivered = Py_NewRef(undelivered);
    return (PyObject *)self;
}

static int Tally_traverse(Tally *self, visitproc visit, void *arg)
{
    /* Not `view.obj`: the collector would clear a memoryview that this buffer still holds, and
     * CPython crashes when that is released. The words never refer to a tally, so nothing leaks. */
    Py_VISIT(self->undelivered);
    return 0;
}

static void Tally_dealloc(Tally *self)
{
    PyObject_GC_UnTrack(self);
    detach(self);
    Py_XDECREF(self->undelivered);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef Tally_methods[] = {
    {"attempt", (PyCFunction)(void (*)(void))Tally_attempt, METH_FASTCALL,
     "Count an attempt; return False if the message is not of this window."},
    {"report", (PyCFunction)(void (*)(void))Tally_report, METH_FASTCALL,
     "Count a message as delivered, or hand its error to `undelivered`."},
    {"attach", (PyCFunction)Tally_attach, METH_O,
     "Count in these words from now on, or nowhere (None)."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef Tally_members[] = {
    {"attempted", T_ULONGLONG, offsetof(Tally, attempted), 0, "Messages attempted."},
    {"delivered", T_ULONGLONG, offsetof(Tally, delivered), 0, "Messages delivered."},
    {"bytes", T_ULONGLONG, offsetof(Tally, bytes), 0, "The bytes of the attempted messages."},
    {NULL, 0, 0, 0, NULL},
};

/* No tp_clear, like a tuple: each cycle contains the WindowCounts, which can be cleared. */
static PyTypeObject Tally_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "headworks._native._tally.Tally",
    .tp_doc = "The counts of one topic and window that every message changes.",
    .tp_basicsize = sizeof(Tally),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = Tally_new,
    .tp_dealloc = (destructor)Tally_dealloc,
    .tp_traverse = (traverseproc)Tally_traverse,
    .tp_methods = Tally_methods,
    .tp_members = Tally_members,
};

/* ---- the window of the last message ---- */

typedef struct {
    PyObject_HEAD
    Tally *tally;                /* or NULL, together with `counts` */
    PyObject *counts;
} LatestWindow;

static PyObject *LatestWindow_attempt(
    LatestWindow *self, PyObject *const *given, Py_ssize_t count)
{
    if (!takes_two("attempt", count))
        return NULL;
    if (self->tally == NULL || !PyBytes_CheckExact(given[1])
            || !count_attempt(self->tally, given[0], PyBytes_GET_SIZE(given[1])))
        Py_RETURN_NONE;
    return Py_NewRef(self->counts);
}

static int LatestWindow_clear(LatestWindow *self)
{
    Py_CLEAR(self->tally);
    Py_CLEAR(self->counts);
    return 0;
}

static PyObject *LatestWindow_hold(LatestWindow *self, PyObject *given)
{
    PyObject *tally, *counts;
    if (!PyArg_ParseTuple(given, "O!O", &Tally_Type, &tally, &counts))
        return NULL;
    Tally *tally_before = self->tally;
    PyObject *counts_before = self->counts;
    self->tally = (Tally *)Py_NewRef(tally);
    self->counts = Py_NewRef(counts);
    Py_XDECREF(tally_before); /* last: it may run Python */
    Py_XDECREF(counts_before);
    Py_RETURN_NONE;
}

static int LatestWindow_traverse(LatestWindow *self, visitproc visit, void *arg)
{
    Py_VISIT(self->tally);
    Py_VISIT(self->counts);
    return 0;
}

static void LatestWindow_dealloc(LatestWindow *self)
{
    PyObject_GC_UnTrack(self);
    LatestWindow_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef LatestWindow_methods[] = {
    {"attempt", (PyCFunction)(void (*)(void))LatestWindow_attempt, METH_FASTCALL,
     "Count an attempt; return the counts to resolve it in, or None if it is not of this window."},
    {"hold", (PyCFunction)LatestWindow_hold, METH_VARARGS,
     "Count in this tally from now on, and return these counts."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject LatestWindow_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "headworks._native._tally.LatestWindow",
    .tp_doc = "The counts of the window of an event class's last message.",
    .tp_basicsize = sizeof(LatestWindow),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)LatestWindow_dealloc,
    .tp_traverse = (traverseproc)LatestWindow_traverse,
    .tp_clear = (inquiry)LatestWindow_clear,
    .tp_methods = LatestWindow_methods,
};

static int fill_module(PyObject *module)
{
    if (PyModule_AddType(module, &Tally_Type) < 0
            || PyModule_AddType(module, &LatestWindow_Type) < 0)
        return -1;
    return PyModule_AddStringConstant(module, "SOURCE", HEADWORKS_SOURCE);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "headworks._native._tally",
    .m_doc = "The compiled form of the counts that every message changes.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__tally(void)
{
    return PyModuleDef_Init(&definition);
}
