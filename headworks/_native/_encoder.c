/* The compiled form of the encoders that `headworks gen` writes: the same bytes, about ten times as
 * fast. A program drives it for each event class. The program is a table of nodes, which
 * headworks/codec/_program.py makes from the schema and the generated classes.
 *
 * Rules:
 *
 * - The generated Python defines the result. This file encodes only exact, ordinary values. It
 *   declines any other event as a whole, and Python then encodes the event or reports the mistake.
 *   Declined are: a subclass, a wrong or out-of-range value, a decimal, a time zone other than UTC,
 *   and nesting deeper than MAX_DEPTH. The only error of its own is MemoryError.
 * - While it reads an event, no Python code runs, and it creates no object that the garbage collector
 *   tracks. References are borrowed, because nothing can change the event meanwhile. Python runs
 *   before or after, and never in between. After the first error nothing more is read.
 * - Attributes are read from the slots of exactly the class that was resolved. A changed class is
 *   recognized by its version tag, and resolved again before the next event.
 * - The buffer grows with the event. Sizes are added with a test for overflow.
 * - The description that a program was made of owns everything that its nodes point to: classes,
 *   names, and enum members. A program changes only where it resolves a changed class again.
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

enum {
    MAX_DEPTH = 128, STACK_BYTES = 1024, MAX_VARINT_BYTES = 10, UUID_SIZE = 16, UUID_TEXT_SIZE = 36
};

enum outcome { FAILED = -1, WRITTEN = 0, DECLINED = 1 };

enum kind {
    NULL_VALUE, BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, STRING, FIXED, ENUM, ARRAY, MAP, RECORD, UNION,
    DATE, TIME_MILLIS, TIME_MICROS, INSTANT_MILLIS, INSTANT_MICROS, LOCAL_MILLIS, LOCAL_MICROS,
    UUID_TEXT, UUID_FIXED, PYTHON_ONLY, KINDS
};

static const char *const KIND_NAMES[KINDS] = {
    "null", "boolean", "int", "long", "float", "double", "bytes", "string", "fixed", "enum", "array",
    "map", "record", "union", "date", "time-millis", "time-micros", "timestamp-millis",
    "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros", "uuid", "uuid-fixed",
    "python"
};

struct field {                   /* a field of a record, or the number in a UUID */
    PyObject *name;
    Py_ssize_t offset;
    const struct node *node;
};

struct choice {                  /* a branch of a union, for values of one class */
    int64_t branch;
    PyTypeObject *cls;           /* NULL: any class */
    int guarded;                 /* takes only an int of 32 bits, or bytes of the fixed's size */
    const struct node *node;
};

struct symbol {
    PyObject *member;
    int64_t number;
};

struct node {
    enum kind kind;
    PyTypeObject *cls;           /* of a record, enum or uuid */
    unsigned int version;        /* the version tag of `cls` when its slots were resolved */
    Py_ssize_t count;            /* of fields, choices, or symbols; the size of a fixed */
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
    PyObject *described;         /* owns everything that nodes point to */
    PyObject *encode;            /* the Python form: event to bytes */
    PyObject *message;           /* the Python form: (prefix, event) to (value, time, key) */
    PyObject *key;               /* event to key, or None */
    Py_ssize_t count, keys;
    struct node *nodes;
    const struct node *uuid;     /* the node of uuid.UUID, or NULL */
    struct path time;
    struct path *key_paths;
    unsigned long long declined;
    int stale;
} Program;

struct output {                  /* the encoding of one event, in progress */
    const Program *program;
    char *bytes;
    size_t used, room;
    int depth;
    int stale;                   /* declined because a class has changed */
    char first[STACK_BYTES];
};

/* ---- the buffer ---- */

static void output_init(struct output *output, const Program *program)
{
    output->program = program;
    output->bytes = output->first;
    output->used = 0;
    output->room = STACK_BYTES;
    output->depth = output->stale = 0;
}

static void output_free(struct output *output)
{
    if (output->bytes != output->first)
        PyMem_Free(output->bytes);
}

static enum outcome grow(struct output *output, size_t more)
{
    const size_t most = (size_t)PY_SSIZE_T_MAX;
    if (more > most - output->used) {
        PyErr_NoMemory();
        return FAILED;
    }
    size_t room = output->used + more;
    room = room > most / 2 ? most : room * 2;
    char *bytes = PyMem_Realloc(output->bytes == output->first ? NULL : output->bytes, room);
    if (bytes == NULL) {
        PyErr_NoMemory();
        return FAILED;
    }
    if (output->bytes == output->first)
        memcpy(bytes, output->first, output->used);
    output->bytes = bytes;
    output->room = room;
    return WRITTEN;
}

static inline enum outcome reserve(struct output *output, size_t more)
{
    return more <= output->room - output->used ? WRITTEN : grow(output, more);
}

static inline void append_varint(struct output *output, int64_t number)
{
    uint64_t rest = ((uint64_t)number << 1) ^ (number < 0 ? UINT64_MAX : 0);
    for (; rest > 127; rest >>= 7)
        output->bytes[output->used++] = (char)(rest | 128);
    output->bytes[output->used++] = (char)rest;
}

static enum outcome write_long(struct output *output, int64_t number)
{
    if (reserve(output, MAX_VARINT_BYTES) != WRITTEN)
        return FAILED;
    append_varint(output, number);
    return WRITTEN;
}

static enum outcome write_raw(struct output *output, const void *data, size_t size)
{
    if (reserve(output, size) != WRITTEN)
        return FAILED;
    memcpy(output->bytes + output->used, data, size);
    output->used += size;
    return WRITTEN;
}

static enum outcome write_sized(struct output *output, const void *data, size_t size)
{
    if (write_long(output, (int64_t)size) != WRITTEN)
        return FAILED;
    return write_raw(output, data, size);
}

/* ---- text ---- */

/* Return whether `text` has no surrogates, and its size in UTF-8. */
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

static void append_utf8(struct output *output, PyObject *text)
{
    const int kind = PyUnicode_KIND(text);
    const void *data = PyUnicode_DATA(text);
    const Py_ssize_t length = PyUnicode_GET_LENGTH(text);
    char *at = output->bytes + output->used;
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
    output->used = (size_t)(at - output->bytes);
}

/* Write the text of a str or of an enum's member: after its size, or alone as in a key. */
static enum outcome write_text(struct output *output, PyObject *text, int sized)
{
#if PY_VERSION_HEX < 0x030C0000
    if (PyUnicode_READY(text) < 0)
        return FAILED;
#endif
    size_t size = (size_t)PyUnicode_GET_LENGTH(text);
    const int plain = PyUnicode_IS_ASCII(text);
    if (!plain && !utf8_size(text, &size))
        return DECLINED;
    if (sized && write_long(output, (int64_t)size) != WRITTEN)
        return FAILED;
    if (plain)
        return write_raw(output, PyUnicode_DATA(text), size);
    if (reserve(output, size) != WRITTEN)
        return FAILED;
    append_utf8(output, text);
    return WRITTEN;
}

static enum outcome write_string(struct output *output, PyObject *value)
{
    return PyUnicode_CheckExact(value) ? write_text(output, value, 1) : DECLINED;
}

/* ---- numbers ---- */

/* Return whether `value` is exactly an int (no bool) of 64 bits, and its number. */
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

/* Return whether `value` is exactly a float or an int, and its number. */
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

static enum outcome write_integer(struct output *output, enum kind kind, PyObject *value)
{
    int64_t number;
    if (!is_long(value, &number) || (kind == INT && !is_int(number)))
        return DECLINED;
    return write_long(output, number);
}

static enum outcome write_real(struct output *output, enum kind kind, PyObject *value)
{
    double number;
    if (!is_real(value, &number))
        return DECLINED;
    if (reserve(output, 8) != WRITTEN)
        return FAILED;
    char *at = output->bytes + output->used;
    if ((kind == FLOAT ? PyFloat_Pack4(number, at, 1) : PyFloat_Pack8(number, at, 1)) < 0)
        return DECLINED;
    output->used += kind == FLOAT ? 4 : 8;
    return WRITTEN;
}

/* ---- dates and times ---- */

/* Return the days from 1970-01-01 to a day of the Gregorian calendar, years 1 to 9999. */
static int64_t days_since_1970(int year, int month, int day)
{
    const int64_t y = year - (month <= 2);             /* the year begins in March */
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

static enum outcome write_moment(struct output *output, enum kind kind, PyObject *value)
{
    if (!PyDateTime_CheckExact(value))
        return DECLINED;
    const int local = kind == LOCAL_MILLIS || kind == LOCAL_MICROS;
    if (PyDateTime_DATE_GET_TZINFO(value) != (local ? Py_None : PyDateTime_TimeZone_UTC))
        return DECLINED;
    const int millis = kind == INSTANT_MILLIS || kind == LOCAL_MILLIS;
    return write_long(output, millis ? millis_since_1970(value) : micros_since_1970(value));
}

static enum outcome write_date(struct output *output, PyObject *value)
{
    if (!PyDate_CheckExact(value))
        return DECLINED;
    return write_long(output, days_since_1970(
        PyDateTime_GET_YEAR(value), PyDateTime_GET_MONTH(value), PyDateTime_GET_DAY(value)));
}

static enum outcome write_time(struct output *output, enum kind kind, PyObject *value)
{
    if (!PyTime_CheckExact(value) || PyDateTime_TIME_GET_TZINFO(value) != Py_None)
        return DECLINED;
    const int64_t minutes = PyDateTime_TIME_GET_HOUR(value) * 60 + PyDateTime_TIME_GET_MINUTE(value);
    const int64_t micros = (minutes * 60 + PyDateTime_TIME_GET_SECOND(value)) * 1000000
        + PyDateTime_TIME_GET_MICROSECOND(value);
    return write_long(output, kind == TIME_MILLIS ? micros / 1000 : micros);
}

/* ---- records and what is in them ---- */

/* Return whether `value` is exactly of the class of `node`, and the class is unchanged. */
static inline int has_class(struct output *output, const struct node *node, PyObject *value)
{
    if (Py_TYPE(value) != node->cls)
        return 0;
    if (node->count && node->cls->tp_version_tag != node->version) {
        output->stale = 1;
        return 0;
    }
    return 1;
}

/* Return the value in a slot, borrowed; NULL if it was deleted. */
static inline PyObject *slot_value(PyObject *owner, const struct field *field)
{
    return *(PyObject **)((char *)owner + field->offset);
}

static int read_uuid(struct output *output, const struct node *node, PyObject *value, unsigned char *raw)
{
    PyObject *number = has_class(output, node, value) ? slot_value(value, &node->fields[0]) : NULL;
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
    struct output *output, const struct node *node, PyObject *value, int sized)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char raw[UUID_SIZE];
    if (!read_uuid(output, node, value, raw))
        return DECLINED;
    if (reserve(output, MAX_VARINT_BYTES + UUID_TEXT_SIZE) != WRITTEN)
        return FAILED;
    if (sized)
        append_varint(output, UUID_TEXT_SIZE);
    char *at = output->bytes + output->used;
    for (int i = 0; i < UUID_SIZE; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *at++ = '-';
        *at++ = digits[raw[i] >> 4];
        *at++ = digits[raw[i] & 15];
    }
    output->used += UUID_TEXT_SIZE;
    return WRITTEN;
}

static enum outcome write_uuid_fixed(struct output *output, const struct node *node, PyObject *value)
{
    unsigned char raw[UUID_SIZE];
    return read_uuid(output, node, value, raw) ? write_raw(output, raw, UUID_SIZE) : DECLINED;
}

static enum outcome write_enum(struct output *output, const struct node *node, PyObject *value)
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
    return write_long(output, node->symbols[low].number);
}

static enum outcome write_value(struct output *output, const struct node *node, PyObject *value);

static enum outcome write_array(struct output *output, const struct node *node, PyObject *value)
{
    if (!PyList_CheckExact(value))
        return DECLINED;
    const Py_ssize_t count = PyList_GET_SIZE(value);
    if (count && write_long(output, count) != WRITTEN)
        return FAILED;
    for (Py_ssize_t i = 0; i < count; i++) {
        const enum outcome outcome = write_value(output, node->item, PyList_GET_ITEM(value, i));
        if (outcome != WRITTEN)
            return outcome;
    }
    return write_long(output, 0);
}

static enum outcome write_map(struct output *output, const struct node *node, PyObject *value)
{
    if (!PyDict_CheckExact(value))
        return DECLINED;
    if (PyDict_GET_SIZE(value) && write_long(output, PyDict_GET_SIZE(value)) != WRITTEN)
        return FAILED;
    PyObject *key, *item;
    Py_ssize_t at = 0;
    while (PyDict_Next(value, &at, &key, &item)) {
        enum outcome outcome = write_string(output, key);
        if (outcome == WRITTEN)
            outcome = write_value(output, node->item, item);
        if (outcome != WRITTEN)
            return outcome;
    }
    return write_long(output, 0);
}

static enum outcome write_record(struct output *output, const struct node *node, PyObject *value)
{
    if (!has_class(output, node, value))
        return DECLINED;
    for (Py_ssize_t i = 0; i < node->count; i++) {
        const struct field *field = &node->fields[i];
        PyObject *found = slot_value(value, field);
        const enum outcome outcome = found ? write_value(output, field->node, found) : DECLINED;
        if (outcome != WRITTEN)
            return outcome;
    }
    return WRITTEN;
}

static int choice_matches(const struct choice *choice, PyObject *value)
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

static enum outcome write_union(struct output *output, const struct node *node, PyObject *value)
{
    for (Py_ssize_t i = 0; i < node->count; i++) {
        const struct choice *choice = &node->choices[i];
        if (!choice_matches(choice, value))
            continue;
        if (write_long(output, choice->branch) != WRITTEN)
            return FAILED;
        return write_value(output, choice->node, value);
    }
    return DECLINED;
}

static enum outcome write_nested(struct output *output, const struct node *node, PyObject *value)
{
    if (output->depth == MAX_DEPTH)
        return DECLINED;
    output->depth++;
    const enum outcome outcome = node->kind == ARRAY ? write_array(output, node, value)
        : node->kind == MAP                          ? write_map(output, node, value)
                                                     : write_record(output, node, value);
    output->depth--;
    return outcome;
}

static enum outcome write_value(struct output *output, const struct node *node, PyObject *value)
{
    switch (node->kind) {
    case NULL_VALUE:
        return value == Py_None ? WRITTEN : DECLINED;
    case BOOLEAN:
        return value == Py_True ? write_raw(output, "\1", 1)
            : value == Py_False ? write_raw(output, "\0", 1)
                                : DECLINED;
    case INT:
    case LONG:
        return write_integer(output, node->kind, value);
    case FLOAT:
    case DOUBLE:
        return write_real(output, node->kind, value);
    case BYTES:
        if (!PyBytes_CheckExact(value))
            return DECLINED;
        return write_sized(output, PyBytes_AS_STRING(value), (size_t)PyBytes_GET_SIZE(value));
    case STRING:
        return write_string(output, value);
    case FIXED:
        if (!PyBytes_CheckExact(value) || PyBytes_GET_SIZE(value) != node->count)
            return DECLINED;
        return write_raw(output, PyBytes_AS_STRING(value), (size_t)node->count);
    case ENUM:
        return write_enum(output, node, value);
    case ARRAY:
    case MAP:
    case RECORD:
        return write_nested(output, node, value);
    case UNION:
        return write_union(output, node, value);
    case DATE:
        return write_date(output, value);
    case TIME_MILLIS:
    case TIME_MICROS:
        return write_time(output, node->kind, value);
    case INSTANT_MILLIS:
    case INSTANT_MICROS:
    case LOCAL_MILLIS:
    case LOCAL_MICROS:
        return write_moment(output, node->kind, value);
    case UUID_TEXT:
        return write_uuid_text(output, node, value, 1);
    case UUID_FIXED:
        return write_uuid_fixed(output, node, value);
    case PYTHON_ONLY:
    case KINDS:
        break;
    }
    return DECLINED;
}

/* ---- a whole event ---- */

static int resolve_slots(struct node *node);

/* Resolve the slots again if a class has changed; return whether they are plain slots. */
static int refresh_stale_classes(Program *self)
{
    if (!self->stale)
        return 1;
    for (Py_ssize_t i = 0; i < self->count; i++)
        if (self->nodes[i].fields != NULL && !resolve_slots(&self->nodes[i]))
            return 0;
    self->stale = 0;
    return 1;
}

static enum outcome write_event(Program *self, struct output *output, PyObject *event)
{
    const enum outcome outcome = write_value(output, &self->nodes[0], event);
    if (outcome == DECLINED) {
        PyErr_Clear();
        self->declined++;
        self->stale |= output->stale;
    }
    return outcome;
}

/* Return the value at the end of a path, of an event that was just written. Every record on the path
 * is of the class of its node. */
static PyObject *value_at(const struct path *path, PyObject *event)
{
    for (Py_ssize_t i = 0; i < path->count; i++)
        event = slot_value(event, path->fields[i]);
    return event;
}

/* Write one part of a key as text; decline a value that only Python can print. */
static enum outcome write_key_part(struct output *output, PyObject *value)
{
    const struct node *uuid = output->program->uuid;
    int64_t number;
    if (value == Py_None)
        return WRITTEN;
    if (value == Py_True)
        return write_raw(output, "True", 4);
    if (value == Py_False)
        return write_raw(output, "False", 5);
    if (PyUnicode_Check(value))
        return write_text(output, value, 0);
    if (uuid != NULL && Py_TYPE(value) == uuid->cls)
        return write_uuid_text(output, uuid, value, 0);
    if (!is_long(value, &number))
        return DECLINED;
    char digits[24];
    const int size = PyOS_snprintf(digits, sizeof digits, "%lld", (long long)number);
    return write_raw(output, digits, (size_t)size);
}

static enum outcome write_key(struct output *output, PyObject *event)
{
    const Program *self = output->program;
    for (Py_ssize_t i = 0; i < self->keys; i++) {
        if (i && write_raw(output, "|", 1) != WRITTEN)
            return FAILED;
        const enum outcome outcome = write_key_part(output, value_at(&self->key_paths[i], event));
        if (outcome != WRITTEN)
            return outcome;
    }
    return WRITTEN;
}

/* Return the key of an event that was just written; Python prints what this file declines. */
static PyObject *key_of(Program *self, struct output *output, PyObject *event)
{
    if (!self->keys)
        return Py_NewRef(Py_None);
    if (self->keys == 1 && value_at(&self->key_paths[0], event) == Py_None)
        return Py_NewRef(Py_None);
    const size_t before = output->used;
    switch (write_key(output, event)) {
    case WRITTEN:
        return PyBytes_FromStringAndSize(output->bytes + before, (Py_ssize_t)(output->used - before));
    case DECLINED:
        return PyObject_CallOneArg(self->key, event);
    case FAILED:
        break;
    }
    return NULL;
}

/* Return (value, time, key) of an event that was just written; steals no reference. */
static PyObject *message_of(Program *self, struct output *output, PyObject *event)
{
    PyObject *result = NULL, *time, *key = NULL;
    PyObject *value = PyBytes_FromStringAndSize(output->bytes, (Py_ssize_t)output->used);
    if (self->time.count)
        time = PyLong_FromLongLong(millis_since_1970(value_at(&self->time, event)));
    else
        time = Py_NewRef(Py_None);
    if (value != NULL && time != NULL)
        key = key_of(self, output, event);
    if (key != NULL)
        result = PyTuple_Pack(3, value, time, key);
    Py_XDECREF(value);
    Py_XDECREF(time);
    Py_XDECREF(key);
    return result;
}

static PyObject *Program_encode(Program *self, PyObject *event)
{
    struct output output;
    PyObject *result = NULL;
    output_init(&output, self);
    enum outcome outcome = DECLINED;
    if (refresh_stale_classes(self))
        outcome = write_event(self, &output, event);
    else
        self->declined++;
    if (outcome == WRITTEN)
        result = PyBytes_FromStringAndSize(output.bytes, (Py_ssize_t)output.used);
    output_free(&output);
    return outcome == DECLINED ? PyObject_CallOneArg(self->encode, event) : result;
}

static PyObject *Program_message(Program *self, PyObject *const *given, Py_ssize_t count)
{
    struct output output;
    PyObject *result = NULL;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "message() takes a prefix and an event");
        return NULL;
    }
    output_init(&output, self);
    enum outcome outcome = DECLINED;
    if (PyBytes_CheckExact(given[0]) && refresh_stale_classes(self)) {
        outcome = write_raw(&output, PyBytes_AS_STRING(given[0]), (size_t)PyBytes_GET_SIZE(given[0]));
        if (outcome == WRITTEN)
            outcome = write_event(self, &output, given[1]);
    } else {
        self->declined++;
    }
    if (outcome == WRITTEN)
        result = message_of(self, &output, given[1]);
    output_free(&output);
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

/* Return whether every attribute of a node's class is a plain slot of it, and record the offsets.
 * It may run the code of a descriptor that replaces a slot, so never call it while reading. */
static int resolve_slots(struct node *node)
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

static int reject_description(const char *why)
{
    PyErr_SetString(PyExc_TypeError, why);
    return -1;
}

static const struct node *node_at(const Program *self, Py_ssize_t at)
{
    if (at >= 0 && at < self->count)
        return &self->nodes[at];
    reject_description("there is no such node");
    return NULL;
}

static int read_class(struct node *node, PyObject *cls)
{
    if (!PyType_Check(cls))
        return reject_description("it is no class");
    node->cls = (PyTypeObject *)cls;
    return 0;
}

/* Allocate the children of a node; the result is not NULL even for no children. */
static void *allocate_children(struct node *node, PyObject *described, size_t size)
{
    void *made = PyMem_Calloc((size_t)PyTuple_GET_SIZE(described) + 1, size);
    if (made == NULL)
        PyErr_NoMemory();
    node->count = PyTuple_GET_SIZE(described);
    return made;
}

static int read_fields(Program *self, struct node *node, PyObject *described)
{
    node->fields = allocate_children(node, described, sizeof *node->fields);
    if (node->fields == NULL)
        return -1;
    for (Py_ssize_t i = 0; i < node->count; i++) {
        struct field *field = &node->fields[i];
        PyObject *pair = PyTuple_GET_ITEM(described, i);
        Py_ssize_t at;
        if (!PyTuple_Check(pair) || !PyArg_ParseTuple(pair, "Un", &field->name, &at))
            return PyErr_Occurred() ? -1 : reject_description("a field is (name, node)");
        if ((field->node = node_at(self, at)) == NULL)
            return -1;
    }
    return resolve_slots(node) ? 0 : reject_description("an attribute of the class is not a plain slot");
}

static int read_choices(Program *self, struct node *node, PyObject *described)
{
    node->choices = allocate_children(node, described, sizeof *node->choices);
    if (node->choices == NULL)
        return -1;
    for (Py_ssize_t i = 0; i < node->count; i++) {
        struct choice *choice = &node->choices[i];
        PyObject *given = PyTuple_GET_ITEM(described, i), *cls;
        Py_ssize_t branch, at;
        if (!PyTuple_Check(given)
            || !PyArg_ParseTuple(given, "nOpn", &branch, &cls, &choice->guarded, &at))
            return PyErr_Occurred() ? -1 : reject_description("a choice is (branch, class, guarded, node)");
        if ((choice->node = node_at(self, at)) == NULL)
            return -1;
        if (cls != Py_None && !PyType_Check(cls))
            return reject_description("a choice is for a class or for all");
        choice->branch = branch;
        choice->cls = cls == Py_None ? NULL : (PyTypeObject *)cls;
        /* choice_matches reads a guarded fixed's value as bytes. */
        if (choice->guarded && choice->cls != &PyBytes_Type && choice->cls != &PyLong_Type)
            return reject_description("only ints and bytes are guarded");
        if (choice->guarded && choice->cls == &PyLong_Type && choice->node->kind == FIXED)
            return reject_description("an int is not fixed");
    }
    return 0;
}

static int by_address(const void *one, const void *other)
{
    const uintptr_t a = (uintptr_t)((const struct symbol *)one)->member;
    const uintptr_t b = (uintptr_t)((const struct symbol *)other)->member;
    return (a > b) - (a < b);
}

static int read_symbols(struct node *node, PyObject *described)
{
    node->symbols = allocate_children(node, described, sizeof *node->symbols);
    if (node->symbols == NULL)
        return -1;
    for (Py_ssize_t i = 0; i < node->count; i++) {
        PyObject *member = PyTuple_GET_ITEM(described, i);
        if (!PyUnicode_Check(member))
            return reject_description("a symbol is text");
        node->symbols[i] = (struct symbol){member, i};
    }
    qsort(node->symbols, (size_t)node->count, sizeof *node->symbols, by_address);
    return 0;
}

static int read_kind(struct node *node, PyObject *described)
{
    PyObject *name = PyTuple_Check(described) && PyTuple_GET_SIZE(described)
        ? PyTuple_GET_ITEM(described, 0) : NULL;
    if (name == NULL || !PyUnicode_Check(name))
        return reject_description("a node is (kind, ...)");
    for (int kind = 0; kind < KINDS; kind++) {
        if (PyUnicode_CompareWithASCIIString(name, KIND_NAMES[kind]) == 0) {
            node->kind = (enum kind)kind;
            return 0;
        }
    }
    return reject_description("there is no such kind of node");
}

/* Read one node of the description; the kinds of all nodes are known. */
static int read_node(Program *self, struct node *node, PyObject *described)
{
    PyObject *kind, *cls, *below;
    Py_ssize_t at;
    switch (node->kind) {
    case FIXED:
        return PyArg_ParseTuple(described, "On", &kind, &node->count) ? 0 : -1;
    case ENUM:
        if (!PyArg_ParseTuple(described, "OOO!", &kind, &cls, &PyTuple_Type, &below))
            return -1;
        return read_class(node, cls) < 0 ? -1 : read_symbols(node, below);
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
            return reject_description("a uuid is one number");
        if (node->kind != RECORD)
            self->uuid = node;
        return read_class(node, cls) < 0 ? -1 : read_fields(self, node, below);
    case UNION:
        if (!PyArg_ParseTuple(described, "OO!", &kind, &PyTuple_Type, &below))
            return -1;
        return read_choices(self, node, below);
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
        reject_description("a path names no field");
    return NULL;
}

/* Read a path of attributes through records; a written event has a value at its end. */
static int read_path(Program *self, struct path *path, PyObject *names)
{
    if (!PyTuple_Check(names) || PyTuple_GET_SIZE(names) == 0)
        return reject_description("a path is a tuple of names");
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
            return PyErr_Occurred() ? -1 : reject_description("a path is a tuple of names");
        path->fields[path->count] = field;
        node = field->node;
    }
    return 0;
}

static int read_paths(Program *self, PyObject *time, PyObject *keys)
{
    if (time != Py_None) {
        if (read_path(self, &self->time, time) < 0)
            return -1;
        const enum kind kind = self->time.fields[self->time.count - 1]->node->kind;
        if (kind != INSTANT_MILLIS && kind != INSTANT_MICROS)
            return reject_description("the event time is not an instant");
    }
    self->key_paths = PyMem_Calloc((size_t)PyTuple_GET_SIZE(keys) + 1, sizeof *self->key_paths);
    if (self->key_paths == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (; self->keys < PyTuple_GET_SIZE(keys); self->keys++)
        if (read_path(self, &self->key_paths[self->keys], PyTuple_GET_ITEM(keys, self->keys)) < 0) {
            self->keys++;
            return -1;
        }
    return 0;
}

static int read_nodes(Program *self)
{
    self->count = PyTuple_GET_SIZE(self->described);
    self->nodes = PyMem_Calloc((size_t)self->count + 1, sizeof *self->nodes);
    if (self->nodes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < self->count; i++)
        if (read_kind(&self->nodes[i], PyTuple_GET_ITEM(self->described, i)) < 0)
            return -1;
    for (Py_ssize_t i = 0; i < self->count; i++)
        if (read_node(self, &self->nodes[i], PyTuple_GET_ITEM(self->described, i)) < 0)
            return -1;
    if (self->count == 0 || self->nodes[0].kind != RECORD)
        return reject_description("an event is a record");
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
    if (read_nodes(self) < 0 || read_paths(self, time, keys) < 0) {
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
     "The number of events that were handed to the Python form."},
    {NULL, 0, 0, 0, NULL},
};

/* No tp_clear, as a tuple has none: the classes in its cycles are cleared themselves. */
static PyTypeObject Program_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "headworks._native._encoder.Program",
    .tp_doc = "The encoder of the events of one class.",
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
