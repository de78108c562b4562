/* The compiled form of the encoders that `headworks gen` writes: the same bytes, an order of
 * magnitude sooner. One program (a table of nodes, made by headworks/codec/_program.py from the
 * schema and the generated classes) drives it for each event class; nothing here knows a schema.
 *
 * Rules:
 *
 * - The generated Python is the truth. Only exact, ordinary values are written here; an event that
 *   holds anything else (a subclass, a value that is wrong or out of range, a decimal, another time
 *   zone, more depth than DEEPEST) is declined as a whole and handed to Python, which encodes it or
 *   says what is wrong. So no error begins here but MemoryError.
 * - While an event is read, no Python code runs and nothing that the garbage collector counts is
 *   made: what is read is borrowed, and nobody can change it meanwhile. Python is called before or
 *   after, never in between; after the first error nothing more is read.
 * - Attributes are read from the slots of exactly the class that was looked at. A class that is
 *   changed afterwards is noticed (its version tag), and looked at again before the next event.
 * - The buffer is as large as the event asks for; sizes are added with a test for overflow.
 * - What nodes point to (classes, names, enum members) is owned by the description they were made
 *   of. A program never changes after it is made, but for what it found in changed classes.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <datetime.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>

#ifndef HEADWORKS_SOURCE
#error "HEADWORKS_SOURCE is the SHA-256 of this file: compile it with hatch_build.py"
#endif

enum { DEEPEST = 128, ON_STACK = 1024, VARINT = 10, UUID_SIZE = 16, UUID_TEXT_SIZE = 36 };

enum outcome { FAILED = -1, WRITTEN = 0, DECLINED = 1 };

enum kind {
    NOTHING, BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, STRING, FIXED, ENUM, ARRAY, MAP, RECORD, UNION,
    DATE, TIME_MILLIS, TIME_MICROS, INSTANT_MILLIS, INSTANT_MICROS, LOCAL_MILLIS, LOCAL_MICROS,
    UUID_TEXT, UUID_FIXED, PYTHON, KINDS
};

static const char *const KIND_NAMES[KINDS] = {
    "null", "boolean", "int", "long", "float", "double", "bytes", "string", "fixed", "enum", "array",
    "map", "record", "union", "date", "time-millis", "time-micros", "timestamp-millis",
    "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros", "uuid", "uuid-fixed",
    "python"
};

struct field {                   /* of a record, or the number in a UUID */
    PyObject *name;
    Py_ssize_t offset;
    const struct node *node;
};

struct choice {                  /* a branch of a union, for values of one class */
    int64_t branch;
    PyTypeObject *cls;           /* NULL: of any */
    int guarded;                 /* only for an int of 32 bits, or bytes of the fixed's size */
    const struct node *node;
};

struct symbol {
    PyObject *member;
    int64_t number;
};

struct node {
    enum kind kind;
    PyTypeObject *cls;           /* of a record, enum or uuid */
    unsigned int version;        /* the version tag of `cls` when its slots were looked at */
    Py_ssize_t count;            /* of what is below; the size of a fixed */
    const struct node *item;     /* of an array or map */
    struct field *fields;
    struct choice *choices;
    struct symbol *symbols;      /* sorted by address */
};

struct path {                    /* from an event through records to a value */
    Py_ssize_t count;
    const struct field **fields;
};

typedef struct {
    PyObject_HEAD
    PyObject *described;         /* owns all that nodes point to */
    PyObject *encode;            /* the Python form: event to bytes */
    PyObject *message;           /* the Python form: (prefix, event) to (value, time, key) */
    PyObject *key;               /* event to key, or None */
    Py_ssize_t count, keys;
    struct node *nodes;
    const struct node *number;   /* the node of uuid.UUID, or NULL */
    struct path time;
    struct path *key_paths;
    unsigned long long declined;
    int stale;
} Program;

struct run {                     /* one event being written */
    const Program *program;
    char *bytes;
    size_t used, room;
    int depth;
    int stale;                   /* declined because a class has changed */
    char first[ON_STACK];
};

/* ---- the buffer ---- */

static void begin(struct run *run, const Program *program)
{
    run->program = program;
    run->bytes = run->first;
    run->used = 0;
    run->room = ON_STACK;
    run->depth = run->stale = 0;
}

static void end(struct run *run)
{
    if (run->bytes != run->first)
        PyMem_Free(run->bytes);
}

static enum outcome grow(struct run *run, size_t more)
{
    const size_t most = (size_t)PY_SSIZE_T_MAX;
    if (more > most - run->used) {
        PyErr_NoMemory();
        return FAILED;
    }
    size_t room = run->used + more;
    room = room > most / 2 ? most : room * 2;
    char *bytes = PyMem_Realloc(run->bytes == run->first ? NULL : run->bytes, room);
    if (bytes == NULL) {
        PyErr_NoMemory();
        return FAILED;
    }
    if (run->bytes == run->first)
        memcpy(bytes, run->first, run->used);
    run->bytes = bytes;
    run->room = room;
    return WRITTEN;
}

static inline enum outcome reserve(struct run *run, size_t more)
{
    return more <= run->room - run->used ? WRITTEN : grow(run, more);
}

static inline void put_long(struct run *run, int64_t number)
{
    uint64_t rest = ((uint64_t)number << 1) ^ (number < 0 ? UINT64_MAX : 0);
    for (; rest > 127; rest >>= 7)
        run->bytes[run->used++] = (char)(rest | 128);
    run->bytes[run->used++] = (char)rest;
}

static enum outcome write_long(struct run *run, int64_t number)
{
    if (reserve(run, VARINT) != WRITTEN)
        return FAILED;
    put_long(run, number);
    return WRITTEN;
}

static enum outcome write_raw(struct run *run, const void *data, size_t size)
{
    if (reserve(run, size) != WRITTEN)
        return FAILED;
    memcpy(run->bytes + run->used, data, size);
    run->used += size;
    return WRITTEN;
}

static enum outcome write_sized(struct run *run, const void *data, size_t size)
{
    if (write_long(run, (int64_t)size) != WRITTEN)
        return FAILED;
    return write_raw(run, data, size);
}

/* ---- text ---- */

/* Whether `text` has a UTF-8 form (no surrogates), and its size. */
static int utf8_size(PyObject *text, size_t *size)
{
    const int kind = PyUnicode_KIND(text);
    const void *data = PyUnicode_DATA(text);
    const Py_ssize_t length = PyUnicode_GET_LENGTH(text);
    size_t sum = 0;
    for (Py_ssize_t i = 0; i < length; i++) {
        const Py_UCS4 c = PyUnicode_READ(kind, data, i);
        if (c >= 0xD800 && c <= 0xDFFF)
            return 0;
        sum += 1 + (c > 0x7F) + (c > 0x7FF) + (c > 0xFFFF);
    }
    *size = sum;
    return 1;
}

static void put_utf8(struct run *run, PyObject *text)
{
    const int kind = PyUnicode_KIND(text);
    const void *data = PyUnicode_DATA(text);
    const Py_ssize_t length = PyUnicode_GET_LENGTH(text);
    char *at = run->bytes + run->used;
    for (Py_ssize_t i = 0; i < length; i++) {
        const Py_UCS4 c = PyUnicode_READ(kind, data, i);
        if (c <= 0x7F) {
            *at++ = (char)c;
            continue;
        }
        if (c <= 0x7FF) {
            *at++ = (char)(0xC0 | c >> 6);
        } else {
            if (c <= 0xFFFF) {
                *at++ = (char)(0xE0 | c >> 12);
            } else {
                *at++ = (char)(0xF0 | c >> 18);
                *at++ = (char)(0x80 | (c >> 12 & 0x3F));
            }
            *at++ = (char)(0x80 | (c >> 6 & 0x3F));
        }
        *at++ = (char)(0x80 | (c & 0x3F));
    }
    run->used = (size_t)(at - run->bytes);
}

/* The text of a str (or of an enum's member); with its size before it, or bare as in a key. */
static enum outcome write_text(struct run *run, PyObject *text, int sized)
{
#if PY_VERSION_HEX < 0x030C0000
    if (PyUnicode_READY(text) < 0)
        return FAILED;
#endif
    size_t size = (size_t)PyUnicode_GET_LENGTH(text);
    const int plain = PyUnicode_IS_ASCII(text);
    if (!plain && !utf8_size(text, &size))
        return DECLINED;
    if (sized && write_long(run, (int64_t)size) != WRITTEN)
        return FAILED;
    if (plain)
        return write_raw(run, PyUnicode_DATA(text), size);
    if (reserve(run, size) != WRITTEN)
        return FAILED;
    put_utf8(run, text);
    return WRITTEN;
}

static enum outcome write_string(struct run *run, PyObject *value)
{
    return PyUnicode_CheckExact(value) ? write_text(run, value, 1) : DECLINED;
}

/* ---- numbers ---- */

/* Whether `value` is exactly an int (no bool) of 64 bits. */
static int is_long(PyObject *value, int64_t *number)
{
    if (!PyLong_CheckExact(value))
        return 0;
    int overflow;
    *number = PyLong_AsLongLongAndOverflow(value, &overflow);
    return !overflow;
}

static int is_int(int64_t number)
{
    return number >= INT32_MIN && number <= INT32_MAX;
}

/* Whether `value` is exactly a float, or an int where a float is declared. */
static int is_real(PyObject *value, double *number)
{
    if (PyFloat_CheckExact(value)) {
        *number = PyFloat_AS_DOUBLE(value);
        return 1;
    }
    if (!PyLong_CheckExact(value))
        return 0;
    *number = PyLong_AsDouble(value);
    return !(*number == -1.0 && PyErr_Occurred());
}

static enum outcome write_integer(struct run *run, enum kind kind, PyObject *value)
{
    int64_t number;
    if (!is_long(value, &number) || (kind == INT && !is_int(number)))
        return DECLINED;
    return write_long(run, number);
}

static enum outcome write_real(struct run *run, enum kind kind, PyObject *value)
{
    double number;
    if (!is_real(value, &number))
        return DECLINED;
    if (reserve(run, 8) != WRITTEN)
        return FAILED;
    char *at = run->bytes + run->used;
    if ((kind == FLOAT ? PyFloat_Pack4(number, at, 1) : PyFloat_Pack8(number, at, 1)) < 0)
        return DECLINED;
    run->used += kind == FLOAT ? 4 : 8;
    return WRITTEN;
}

/* ---- dates and times ---- */

/* Days from 1970-01-01 to a day of the Gregorian calendar, years 1 to 9999. */
static int64_t days_since_1970(int year, int month, int day)
{
    const int64_t y = year - (month <= 2);             /* years begin in March here */
    const int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return 365 * y + y / 4 - y / 100 + y / 400 + of_year - 719468;
}

static int64_t seconds_since_1970(PyObject *at)
{
    const int64_t days = days_since_1970(
        PyDateTime_GET_YEAR(at), PyDateTime_GET_MONTH(at), PyDateTime_GET_DAY(at));
    const int hours = PyDateTime_DATE_GET_HOUR(at), minutes = PyDateTime_DATE_GET_MINUTE(at);
    return ((days * 24 + hours) * 60 + minutes) * 60 + PyDateTime_DATE_GET_SECOND(at);
}

static int64_t millis_since_1970(PyObject *at)
{
    return seconds_since_1970(at) * 1000 + PyDateTime_DATE_GET_MICROSECOND(at) / 1000;
}

static int64_t micros_since_1970(PyObject *at)
{
    return seconds_since_1970(at) * 1000000 + PyDateTime_DATE_GET_MICROSECOND(at);
}

static enum outcome write_moment(struct run *run, enum kind kind, PyObject *value)
{
    if (!PyDateTime_CheckExact(value))
        return DECLINED;
    const int local = kind == LOCAL_MILLIS || kind == LOCAL_MICROS;
    if (PyDateTime_DATE_GET_TZINFO(value) != (local ? Py_None : PyDateTime_TimeZone_UTC))
        return DECLINED;
    const int millis = kind == INSTANT_MILLIS || kind == LOCAL_MILLIS;
    return write_long(run, millis ? millis_since_1970(value) : micros_since_1970(value));
}

static enum outcome write_date(struct run *run, PyObject *value)
{
    if (!PyDate_CheckExact(value))
        return DECLINED;
    return write_long(run, days_since_1970(
        PyDateTime_GET_YEAR(value), PyDateTime_GET_MONTH(value), PyDateTime_GET_DAY(value)));
}

static enum outcome write_time(struct run *run, enum kind kind, PyObject *value)
{
    if (!PyTime_CheckExact(value) || PyDateTime_TIME_GET_TZINFO(value) != Py_None)
        return DECLINED;
    const int64_t minutes = PyDateTime_TIME_GET_HOUR(value) * 60 + PyDateTime_TIME_GET_MINUTE(value);
    const int64_t micros = (minutes * 60 + PyDateTime_TIME_GET_SECOND(value)) * 1000000
        + PyDateTime_TIME_GET_MICROSECOND(value);
    return write_long(run, kind == TIME_MILLIS ? micros / 1000 : micros);
}

/* ---- records and what is in them ---- */

/* Whether `value` is exactly of the class of `node`, with its slots where they were seen. */
static inline int is_of(struct run *run, const struct node *node, PyObject *value)
{
    if (Py_TYPE(value) != node->cls)
        return 0;
    if (node->count && node->cls->tp_version_tag != node->version) {
        run->stale = 1;
        return 0;
    }
    return 1;
}

/* What a slot holds (borrowed); NULL if it was deleted. */
static inline PyObject *held(PyObject *owner, const struct field *field)
{
    return *(PyObject **)((char *)owner + field->offset);
}

static int uuid_bytes(struct run *run, const struct node *node, PyObject *value, unsigned char *raw)
{
    PyObject *number = is_of(run, node, value) ? held(value, &node->fields[0]) : NULL;
    if (number == NULL || !PyLong_CheckExact(number))
        return 0;
#if PY_VERSION_HEX >= 0x030D0000
    const int how = Py_ASNATIVEBYTES_BIG_ENDIAN | Py_ASNATIVEBYTES_UNSIGNED_BUFFER
        | Py_ASNATIVEBYTES_REJECT_NEGATIVE;
    const Py_ssize_t size = PyLong_AsNativeBytes(number, raw, UUID_SIZE, how);
    return size >= 0 && size <= UUID_SIZE;
#else
    return _PyLong_AsByteArray((PyLongObject *)number, raw, UUID_SIZE, 0, 0) == 0;
#endif
}

static enum outcome write_uuid_text(
    struct run *run, const struct node *node, PyObject *value, int sized)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char raw[UUID_SIZE];
    if (!uuid_bytes(run, node, value, raw))
        return DECLINED;
    if (reserve(run, VARINT + UUID_TEXT_SIZE) != WRITTEN)
        return FAILED;
    if (sized)
        put_long(run, UUID_TEXT_SIZE);
    char *at = run->bytes + run->used;
    for (int i = 0; i < UUID_SIZE; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *at++ = '-';
        *at++ = digits[raw[i] >> 4];
        *at++ = digits[raw[i] & 15];
    }
    run->used += UUID_TEXT_SIZE;
    return WRITTEN;
}

static enum outcome write_uuid_fixed(struct run *run, const struct node *node, PyObject *value)
{
    unsigned char raw[UUID_SIZE];
    return uuid_bytes(run, node, value, raw) ? write_raw(run, raw, UUID_SIZE) : DECLINED;
}

static enum outcome write_enum(struct run *run, const struct node *node, PyObject *value)
{
    if (Py_TYPE(value) != node->cls)
        return DECLINED;
    Py_ssize_t low = 0, high = node->count;
    while (low < high) {
        const Py_ssize_t middle = low + (high - low) / 2;
        if ((uintptr_t)node->symbols[middle].member < (uintptr_t)value)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == node->count || node->symbols[low].member != value)
        return DECLINED;
    return write_long(run, node->symbols[low].number);
}

static enum outcome write_value(struct run *run, const struct node *node, PyObject *value);

static enum outcome write_array(struct run *run, const struct node *node, PyObject *value)
{
    if (!PyList_CheckExact(value))
        return DECLINED;
    const Py_ssize_t count = PyList_GET_SIZE(value);
    if (count && write_long(run, count) != WRITTEN)
        return FAILED;
    for (Py_ssize_t i = 0; i < count; i++) {
        const enum outcome outcome = write_value(run, node->item, PyList_GET_ITEM(value, i));
        if (outcome != WRITTEN)
            return outcome;
    }
    return write_long(run, 0);
}

static enum outcome write_map(struct run *run, const struct node *node, PyObject *value)
{
    if (!PyDict_CheckExact(value))
        return DECLINED;
    if (PyDict_GET_SIZE(value) && write_long(run, PyDict_GET_SIZE(value)) != WRITTEN)
        return FAILED;
    PyObject *key, *item;
    Py_ssize_t at = 0;
    while (PyDict_Next(value, &at, &key, &item)) {
        enum outcome outcome = write_string(run, key);
        if (outcome == WRITTEN)
            outcome = write_value(run, node->item, item);
        if (outcome != WRITTEN)
            return outcome;
    }
    return write_long(run, 0);
}

static enum outcome write_record(struct run *run, const struct node *node, PyObject *value)
{
    if (!is_of(run, node, value))
        return DECLINED;
    for (Py_ssize_t i = 0; i < node->count; i++) {
        const struct field *field = &node->fields[i];
        PyObject *found = held(value, field);
        const enum outcome outcome = found ? write_value(run, field->node, found) : DECLINED;
        if (outcome != WRITTEN)
            return outcome;
    }
    return WRITTEN;
}

static int is_choice(const struct choice *choice, PyObject *value)
{
    if (choice->cls != NULL && Py_TYPE(value) != choice->cls)
        return 0;
    if (!choice->guarded)
        return 1;
    int64_t number;
    if (choice->node->kind == FIXED)
        return PyBytes_GET_SIZE(value) == choice->node->count;
    return is_long(value, &number) && is_int(number);
}

static enum outcome write_union(struct run *run, const struct node *node, PyObject *value)
{
    for (Py_ssize_t i = 0; i < node->count; i++) {
        const struct choice *choice = &node->choices[i];
        if (!is_choice(choice, value))
            continue;
        if (write_long(run, choice->branch) != WRITTEN)
            return FAILED;
        return write_value(run, choice->node, value);
    }
    return DECLINED;
}

static enum outcome write_nested(struct run *run, const struct node *node, PyObject *value)
{
    if (run->depth == DEEPEST)
        return DECLINED;
    run->depth++;
    const enum outcome outcome = node->kind == ARRAY ? write_array(run, node, value)
        : node->kind == MAP                          ? write_map(run, node, value)
                                                     : write_record(run, node, value);
    run->depth--;
    return outcome;
}

static enum outcome write_value(struct run *run, const struct node *node, PyObject *value)
{
    switch (node->kind) {
    case NOTHING:
        return value == Py_None ? WRITTEN : DECLINED;
    case BOOLEAN:
        return value == Py_True ? write_raw(run, "\1", 1)
            : value == Py_False ? write_raw(run, "\0", 1)
                                : DECLINED;
    case INT:
    case LONG:
        return write_integer(run, node->kind, value);
    case FLOAT:
    case DOUBLE:
        return write_real(run, node->kind, value);
    case BYTES:
        if (!PyBytes_CheckExact(value))
            return DECLINED;
        return write_sized(run, PyBytes_AS_STRING(value), (size_t)PyBytes_GET_SIZE(value));
    case STRING:
        return write_string(run, value);
    case FIXED:
        if (!PyBytes_CheckExact(value) || PyBytes_GET_SIZE(value) != node->count)
            return DECLINED;
        return write_raw(run, PyBytes_AS_STRING(value), (size_t)node->count);
    case ENUM:
        return write_enum(run, node, value);
    case ARRAY:
    case MAP:
    case RECORD:
        return write_nested(run, node, value);
    case UNION:
        return write_union(run, node, value);
    case DATE:
        return write_date(run, value);
    case TIME_MILLIS:
    case TIME_MICROS:
        return write_time(run, node->kind, value);
    case INSTANT_MILLIS:
    case INSTANT_MICROS:
    case LOCAL_MILLIS:
    case LOCAL_MICROS:
        return write_moment(run, node->kind, value);
    case UUID_TEXT:
        return write_uuid_text(run, node, value, 1);
    case UUID_FIXED:
        return write_uuid_fixed(run, node, value);
    case PYTHON:
    case KINDS:
        break;
    }
    return DECLINED;
}

/* ---- a whole event ---- */

static int look_at_slots(struct node *node);

/* Look at the classes again if one had changed; whether their slots are as they must be. */
static int is_current(Program *self)
{
    if (!self->stale)
        return 1;
    for (Py_ssize_t i = 0; i < self->count; i++)
        if (self->nodes[i].fields != NULL && !look_at_slots(&self->nodes[i]))
            return 0;
    self->stale = 0;
    return 1;
}

static enum outcome write_event(Program *self, struct run *run, PyObject *event)
{
    const enum outcome outcome = write_value(run, &self->nodes[0], event);
    if (outcome == DECLINED) {
        PyErr_Clear();
        self->declined++;
        self->stale |= run->stale;
    }
    return outcome;
}

/* The value at the end of a path, of an event that was just written: every record on it is of the
 * class of its node. */
static PyObject *value_at(const struct path *path, PyObject *event)
{
    for (Py_ssize_t i = 0; i < path->count; i++)
        event = held(event, path->fields[i]);
    return event;
}

/* One part of a key as text; declines what only Python knows how to print. */
static enum outcome write_key_part(struct run *run, PyObject *value)
{
    const struct node *uuid = run->program->number;
    int64_t number;
    if (value == Py_None)
        return WRITTEN;
    if (value == Py_True)
        return write_raw(run, "True", 4);
    if (value == Py_False)
        return write_raw(run, "False", 5);
    if (PyUnicode_Check(value))
        return write_text(run, value, 0);
    if (uuid != NULL && Py_TYPE(value) == uuid->cls)
        return write_uuid_text(run, uuid, value, 0);
    if (!is_long(value, &number))
        return DECLINED;
    char digits[24];
    const int size = PyOS_snprintf(digits, sizeof digits, "%lld", (long long)number);
    return write_raw(run, digits, (size_t)size);
}

static enum outcome write_key(struct run *run, PyObject *event)
{
    const Program *self = run->program;
    for (Py_ssize_t i = 0; i < self->keys; i++) {
        if (i && write_raw(run, "|", 1) != WRITTEN)
            return FAILED;
        const enum outcome outcome = write_key_part(run, value_at(&self->key_paths[i], event));
        if (outcome != WRITTEN)
            return outcome;
    }
    return WRITTEN;
}

/* The key of an event that was just written, with what of it Python must print printed by it. */
static PyObject *key_of(Program *self, struct run *run, PyObject *event)
{
    if (!self->keys)
        return Py_NewRef(Py_None);
    if (self->keys == 1 && value_at(&self->key_paths[0], event) == Py_None)
        return Py_NewRef(Py_None);
    const size_t before = run->used;
    switch (write_key(run, event)) {
    case WRITTEN:
        return PyBytes_FromStringAndSize(run->bytes + before, (Py_ssize_t)(run->used - before));
    case DECLINED:
        return PyObject_CallOneArg(self->key, event);
    case FAILED:
        break;
    }
    return NULL;
}

/* (value, time, key) of an event that was just written; steals nothing. */
static PyObject *message_of(Program *self, struct run *run, PyObject *event)
{
    PyObject *result = NULL, *time, *key = NULL;
    PyObject *value = PyBytes_FromStringAndSize(run->bytes, (Py_ssize_t)run->used);
    if (self->time.count)
        time = PyLong_FromLongLong(millis_since_1970(value_at(&self->time, event)));
    else
        time = Py_NewRef(Py_None);
    if (value != NULL && time != NULL)
        key = key_of(self, run, event);
    if (key != NULL)
        result = PyTuple_Pack(3, value, time, key);
    Py_XDECREF(value);
    Py_XDECREF(time);
    Py_XDECREF(key);
    return result;
}

static PyObject *Program_encode(Program *self, PyObject *event)
{
    struct run run;
    PyObject *result = NULL;
    begin(&run, self);
    enum outcome outcome = DECLINED;
    if (is_current(self))
        outcome = write_event(self, &run, event);
    else
        self->declined++;
    if (outcome == WRITTEN)
        result = PyBytes_FromStringAndSize(run.bytes, (Py_ssize_t)run.used);
    end(&run);
    return outcome == DECLINED ? PyObject_CallOneArg(self->encode, event) : result;
}

static PyObject *Program_message(Program *self, PyObject *const *given, Py_ssize_t count)
{
    struct run run;
    PyObject *result = NULL;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "message() takes a prefix and an event");
        return NULL;
    }
    begin(&run, self);
    enum outcome outcome = DECLINED;
    if (PyBytes_CheckExact(given[0]) && is_current(self)) {
        outcome = write_raw(&run, PyBytes_AS_STRING(given[0]), (size_t)PyBytes_GET_SIZE(given[0]));
        if (outcome == WRITTEN)
            outcome = write_event(self, &run, given[1]);
    } else {
        self->declined++;
    }
    if (outcome == WRITTEN)
        result = message_of(self, &run, given[1]);
    end(&run);
    if (outcome == DECLINED)
        return PyObject_Vectorcall(self->message, given, 2, NULL);
    return result;
}

/* ---- making a program ---- */

static int is_slot(PyObject *found, PyTypeObject *cls)
{
    if (!Py_IS_TYPE(found, &PyMemberDescr_Type) || PyDescr_TYPE(found) != cls)
        return 0;
    return ((PyMemberDescrObject *)found)->d_member->type == T_OBJECT_EX;
}

/* Whether every attribute of a node's class is a plain slot of it; finds where they are. Runs what
 * a class puts in a slot's place: never while an event is read. */
static int look_at_slots(struct node *node)
{
    PyObject *cls = (PyObject *)node->cls;
    if (!Py_IS_TYPE(cls, &PyType_Type) || node->cls->tp_getattro != PyObject_GenericGetAttr)
        return 0;
    for (Py_ssize_t i = -1; i < node->count; i++) {
        /* The class's own __slots__ first: long names alone would give it no version tag. */
        PyObject *found = i < 0 ? PyObject_GetAttrString(cls, "__slots__")
                                : PyObject_GetAttr(cls, node->fields[i].name);
        const int is = found != NULL && (i < 0 || is_slot(found, node->cls));
        if (is && i >= 0)
            node->fields[i].offset = ((PyMemberDescrObject *)found)->d_member->offset;
        Py_XDECREF(found);
        if (!is) {
            PyErr_Clear();
            return 0;
        }
    }
    node->version = node->cls->tp_version_tag;
    return node->version != 0 || node->count == 0;
}

static int unfit(const char *why)
{
    PyErr_SetString(PyExc_TypeError, why);
    return -1;
}

static const struct node *node_at(const Program *self, Py_ssize_t at)
{
    if (at >= 0 && at < self->count)
        return &self->nodes[at];
    unfit("there is no such node");
    return NULL;
}

static int take_class(struct node *node, PyObject *cls)
{
    if (!PyType_Check(cls))
        return unfit("it is no class");
    node->cls = (PyTypeObject *)cls;
    return 0;
}

/* Memory for the parts of a node; those of no parts are not NULL either. */
static void *parts(struct node *node, PyObject *described, size_t size)
{
    void *made = PyMem_Calloc((size_t)PyTuple_GET_SIZE(described) + 1, size);
    if (made == NULL)
        PyErr_NoMemory();
    node->count = PyTuple_GET_SIZE(described);
    return made;
}

static int take_fields(Program *self, struct node *node, PyObject *described)
{
    node->fields = parts(node, described, sizeof *node->fields);
    if (node->fields == NULL)
        return -1;
    for (Py_ssize_t i = 0; i < node->count; i++) {
        struct field *field = &node->fields[i];
        PyObject *pair = PyTuple_GET_ITEM(described, i);
        Py_ssize_t at;
        if (!PyTuple_Check(pair) || !PyArg_ParseTuple(pair, "Un", &field->name, &at))
            return PyErr_Occurred() ? -1 : unfit("a field is (name, node)");
        if ((field->node = node_at(self, at)) == NULL)
            return -1;
    }
    return look_at_slots(node) ? 0 : unfit("an attribute of the class is not a plain slot");
}

static int take_choices(Program *self, struct node *node, PyObject *described)
{
    node->choices = parts(node, described, sizeof *node->choices);
    if (node->choices == NULL)
        return -1;
    for (Py_ssize_t i = 0; i < node->count; i++) {
        struct choice *choice = &node->choices[i];
        PyObject *given = PyTuple_GET_ITEM(described, i), *cls;
        Py_ssize_t branch, at;
        if (!PyTuple_Check(given)
            || !PyArg_ParseTuple(given, "nOpn", &branch, &cls, &choice->guarded, &at))
            return PyErr_Occurred() ? -1 : unfit("a choice is (branch, class, guarded, node)");
        if ((choice->node = node_at(self, at)) == NULL)
            return -1;
        if (cls != Py_None && !PyType_Check(cls))
            return unfit("a choice is for a class or for all");
        choice->branch = branch;
        choice->cls = cls == Py_None ? NULL : (PyTypeObject *)cls;
        /* is_choice reads a guarded fixed's value as bytes. */
        if (choice->guarded && choice->cls != &PyBytes_Type && choice->cls != &PyLong_Type)
            return unfit("only ints and bytes are guarded");
        if (choice->guarded && choice->cls == &PyLong_Type && choice->node->kind == FIXED)
            return unfit("an int is not fixed");
    }
    return 0;
}

static int by_address(const void *one, const void *other)
{
    const uintptr_t a = (uintptr_t)((const struct symbol *)one)->member;
    const uintptr_t b = (uintptr_t)((const struct symbol *)other)->member;
    return (a > b) - (a < b);
}

static int take_symbols(struct node *node, PyObject *described)
{
    node->symbols = parts(node, described, sizeof *node->symbols);
    if (node->symbols == NULL)
        return -1;
    for (Py_ssize_t i = 0; i < node->count; i++) {
        PyObject *member = PyTuple_GET_ITEM(described, i);
        if (!PyUnicode_Check(member))
            return unfit("a symbol is text");
        node->symbols[i] = (struct symbol){member, i};
    }
    qsort(node->symbols, (size_t)node->count, sizeof *node->symbols, by_address);
    return 0;
}

static int take_kind(struct node *node, PyObject *described)
{
    PyObject *name = PyTuple_Check(described) && PyTuple_GET_SIZE(described)
        ? PyTuple_GET_ITEM(described, 0) : NULL;
    if (name == NULL || !PyUnicode_Check(name))
        return unfit("a node is (kind, ...)");
    for (int kind = 0; kind < KINDS; kind++) {
        if (PyUnicode_CompareWithASCIIString(name, KIND_NAMES[kind]) == 0) {
            node->kind = (enum kind)kind;
            return 0;
        }
    }
    return unfit("there is no such kind of node");
}

/* Read one node of the description; the kinds of all are known. */
static int take_node(Program *self, struct node *node, PyObject *described)
{
    PyObject *kind, *cls, *below;
    Py_ssize_t at;
    switch (node->kind) {
    case FIXED:
        return PyArg_ParseTuple(described, "On", &kind, &node->count) ? 0 : -1;
    case ENUM:
        if (!PyArg_ParseTuple(described, "OOO!", &kind, &cls, &PyTuple_Type, &below))
            return -1;
        return take_class(node, cls) < 0 ? -1 : take_symbols(node, below);
    case ARRAY:
    case MAP:
        if (!PyArg_ParseTuple(described, "On", &kind, &at))
            return -1;
        return (node->item = node_at(self, at)) == NULL ? -1 : 0;
    case RECORD:
    case UUID_TEXT:
    case UUID_FIXED:
        if (!PyArg_ParseTuple(described, "OOO!", &kind, &cls, &PyTuple_Type, &below))
            return -1;
        if (node->kind != RECORD && PyTuple_GET_SIZE(below) != 1)
            return unfit("a uuid is one number");
        if (node->kind != RECORD)
            self->number = node;
        return take_class(node, cls) < 0 ? -1 : take_fields(self, node, below);
    case UNION:
        if (!PyArg_ParseTuple(described, "OO!", &kind, &PyTuple_Type, &below))
            return -1;
        return take_choices(self, node, below);
    default:
        return 0;
    }
}

static const struct field *field_named(const struct node *node, PyObject *name)
{
    for (Py_ssize_t i = 0; node->kind == RECORD && i < node->count; i++)
        if (PyUnicode_Compare(node->fields[i].name, name) == 0)
            return &node->fields[i];
    if (!PyErr_Occurred())
        unfit("a path names no field");
    return NULL;
}

/* A path of attributes through records, which writing an event proves to be there. */
static int take_path(Program *self, struct path *path, PyObject *names)
{
    if (!PyTuple_Check(names) || PyTuple_GET_SIZE(names) == 0)
        return unfit("a path is a tuple of names");
    const struct node *node = &self->nodes[0];
    path->fields = PyMem_Calloc((size_t)PyTuple_GET_SIZE(names), sizeof *path->fields);
    if (path->fields == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (; path->count < PyTuple_GET_SIZE(names); path->count++) {
        PyObject *name = PyTuple_GET_ITEM(names, path->count);
        const struct field *field = PyUnicode_Check(name) ? field_named(node, name) : NULL;
        if (field == NULL)
            return PyErr_Occurred() ? -1 : unfit("a path is a tuple of names");
        path->fields[path->count] = field;
        node = field->node;
    }
    return 0;
}

static int take_paths(Program *self, PyObject *time, PyObject *keys)
{
    if (time != Py_None) {
        if (take_path(self, &self->time, time) < 0)
            return -1;
        const enum kind kind = self->time.fields[self->time.count - 1]->node->kind;
        if (kind != INSTANT_MILLIS && kind != INSTANT_MICROS)
            return unfit("the event time is not an instant");
    }
    self->key_paths = PyMem_Calloc((size_t)PyTuple_GET_SIZE(keys) + 1, sizeof *self->key_paths);
    if (self->key_paths == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (; self->keys < PyTuple_GET_SIZE(keys); self->keys++)
        if (take_path(self, &self->key_paths[self->keys], PyTuple_GET_ITEM(keys, self->keys)) < 0) {
            self->keys++;
            return -1;
        }
    return 0;
}

static int take_nodes(Program *self)
{
    self->count = PyTuple_GET_SIZE(self->described);
    self->nodes = PyMem_Calloc((size_t)self->count + 1, sizeof *self->nodes);
    if (self->nodes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < self->count; i++)
        if (take_kind(&self->nodes[i], PyTuple_GET_ITEM(self->described, i)) < 0)
            return -1;
    for (Py_ssize_t i = 0; i < self->count; i++)
        if (take_node(self, &self->nodes[i], PyTuple_GET_ITEM(self->described, i)) < 0)
            return -1;
    if (self->count == 0 || self->nodes[0].kind != RECORD)
        return unfit("an event is a record");
    return 0;
}

static PyObject *Program_new(PyTypeObject *type, PyObject *given, PyObject *named)
{
    static char *names[] = {"nodes", "time", "keys", "encode", "message", "key", NULL};
    PyObject *nodes, *time, *keys, *encode, *message, *key;
    if (!PyArg_ParseTupleAndKeywords(
            given, named, "O!OO!OOO", names, &PyTuple_Type, &nodes, &time, &PyTuple_Type, &keys,
            &encode, &message, &key))
        return NULL;
    Program *self = (Program *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->described = Py_NewRef(nodes);
    self->encode = Py_NewRef(encode);
    self->message = Py_NewRef(message);
    self->key = Py_NewRef(key);
    if (take_nodes(self) < 0 || take_paths(self, time, keys) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int Program_traverse(Program *self, visitproc visit, void *arg)
{
    Py_VISIT(self->described);
    Py_VISIT(self->encode);
    Py_VISIT(self->message);
    Py_VISIT(self->key);
    return 0;
}

static void Program_dealloc(Program *self)
{
    PyObject_GC_UnTrack(self);
    for (Py_ssize_t i = 0; self->nodes != NULL && i < self->count; i++) {
        PyMem_Free(self->nodes[i].fields);
        PyMem_Free(self->nodes[i].choices);
        PyMem_Free(self->nodes[i].symbols);
    }
    for (Py_ssize_t i = 0; i < self->keys; i++)
        PyMem_Free(self->key_paths[i].fields);
    PyMem_Free(self->key_paths);
    PyMem_Free(self->time.fields);
    PyMem_Free(self->nodes);
    Py_XDECREF(self->described);
    Py_XDECREF(self->encode);
    Py_XDECREF(self->message);
    Py_XDECREF(self->key);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef Program_methods[] = {
    {"encode", (PyCFunction)Program_encode, METH_O, "The Avro bytes of an event."},
    {"message", (PyCFunction)(void (*)(void))Program_message, METH_FASTCALL,
     "The value (after a prefix), time and key of an event's message."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef Program_members[] = {
    {"declined", T_ULONGLONG, offsetof(Program, declined), READONLY,
     "How many events were handed to the Python form."},
    {NULL, 0, 0, 0, NULL},
};

/* No tp_clear, as a tuple has none: the classes in its cycles are cleared themselves. */
static PyTypeObject Program_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "headworks._native._encoder.Program",
    .tp_doc = "What encodes the events of one class.",
    .tp_basicsize = sizeof(Program),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = Program_new,
    .tp_dealloc = (destructor)Program_dealloc,
    .tp_traverse = (traverseproc)Program_traverse,
    .tp_methods = Program_methods,
    .tp_members = Program_members,
};

static int fill_module(PyObject *module)
{
    PyDateTime_IMPORT;
    if (PyDateTimeAPI == NULL || PyModule_AddType(module, &Program_Type) < 0)
        return -1;
    return PyModule_AddStringConstant(module, "SOURCE", HEADWORKS_SOURCE);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "headworks._native._encoder",
    .m_doc = "The compiled form of generated encoders.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__encoder(void)
{
    return PyModuleDef_Init(&definition);
}
