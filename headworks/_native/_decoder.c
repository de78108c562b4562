/* The compiled form of the decoders that headworks/_decoding generates: Avro data to columns, and to
 * events as objects.
 * A program drives it for each pair of schemas. The program is a table of nodes, which
 * headworks/_decoding/program.py makes from the resolved actions of the pair.
 *
 * Rules:
 *
 * - The generated Python defines the result. This file only says whether a datum is good, and gives
 *   the values of the good ones. A bad datum that failed at a "fail" node comes with its number;
 *   the reason of any other one comes from the generated Python.
 * - An event is made whole or declined, and Python then decodes it. An object gets its attributes in
 *   the slots of exactly the class that was resolved. A class that was changed is recognized by its
 *   version tag, and its events are declined.
 * - A datum is read to its end. Every length and every count is compared with the bytes that are left
 *   before anything is allocated for it, and nesting ends at MAX_DEPTH. Short texts are moved whole,
 *   with bytes of the next datum that do not count; never with bytes past the end of all data.
 * - A bad datum costs itself: the columns are cut back to the rows before it.
 * - Columns are filled without the interpreter's lock, and no Python object is touched there. A
 *   program that fills columns in one thread refuses a second thread.
 * - A column grows with its values and never beyond Arrow's offsets of 32 bits.
 * - The description that a program was made of owns all bytes that its nodes point to.
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
    MAX_DEPTH = 1000, MAX_EVENT_DEPTH = 128, MAX_EMPTY_ITEMS = 100000, FEW_KEYS = 16, MIN_ROOM = 64,
    MAX_CHECK_DEPTH = 251,  /* the datum itself, and 250 records, arrays, and maps inside each other */
    UUID_SIZE = 16, UUID_TEXT_SIZE = 36, DECIMAL_SIZE = 16, MIN_RECORD_BYTES = 7,
    CACHE_LINE = 64, PREFETCHED_BYTES = 512, AHEAD = 4,  /* datums */
    SHORT = 32,             /* bytes of text that are moved at once */
    NO_VALUE = -1, NO_FRAME = -2, FRAME_SIZE = 5  /* the magic byte 0, and a schema id */
};

static const int64_t MAX_MILLIS = INT64_MAX / 1000;  /* that are a 64-bit number of microseconds */
static const int64_t MAX_TIMESTAMP_MS = 253402300799999;  /* the end of the year 9999 */

enum outcome { TOO_LARGE = -2, NO_MEMORY = -1, READ = 0, BAD = 1 };

enum kind {
    STEPS, UNION, FAIL, NULL_VALUE, CONSTANT, CONSTANT_LIST, INTEGER, AS_DOUBLE, AS_FLOAT, FROM_MILLIS,
    FROM_NANOS, FLOAT, DOUBLE, BOOLEAN, UNSIGNED, BYTES, TEXT, UUID_FIXED, DECIMAL, WIDE_DECIMAL, LIST,
    MAP, SKIP_NUMBER, SKIP_BYTES, SKIP_WIDTH, SKIP_BLOCKS, OBJECT, CALL, RECORD, INSTANT_MILLIS,
    INSTANT_MICROS, UUID_NUMBER, KEYS, KINDS
};

static const char *const KIND_NAMES[KINDS] = {
    "steps", "union", "fail", "null", "constant", "constant-list", "integer", "as-double", "as-float",
    "from-millis", "from-nanos", "float", "double", "boolean", "unsigned", "bytes", "text",
    "uuid-fixed", "decimal", "wide-decimal", "list", "map", "skip-number", "skip-bytes", "skip-width",
    "skip-blocks", "object", "call", "record", "instant-millis", "instant-micros",
    "uuid-number", "keys"
};

enum layout { PRESENCE, BITS, WORD32, WORD64, WORD128, VARIABLE, ITEMS, LAYOUTS };

static const char *const LAYOUT_NAMES[LAYOUTS] = {
    "presence", "bits", "word32", "word64", "word128", "variable", "items"
};
static const size_t CELL_SIZES[LAYOUTS] = {0, 1, 4, 8, 16, 4, 4};
static const size_t HEAD_SIZES[LAYOUTS] = {0, 0, 0, 0, 0, 4, 4};  /* of the 0 that ends begin with */

struct column {                  /* the values of one column node since the last decode() */
    enum layout layout;
    Py_ssize_t count;            /* of children: members of a struct, or the items of a list */
    struct column **children;
    size_t size, room;           /* elements */
    size_t text_size, text_room; /* bytes */
    size_t usual, usual_text;    /* elements and bytes of the decode() before: the first room */
    char *head;                  /* the memory of the cells: Arrow's offsets begin with a 0 */
    char *cells;                 /* values; a byte for a bit; the 32-bit ends of text and items */
    char *text;
    unsigned char *valid;        /* a byte per element; used only if `has_nulls` */
    int has_nulls;
};

struct input;
struct node;
typedef enum outcome filler(struct input *, const struct node *);

struct node {
    enum kind kind;
    filler *fill;                /* of columns: what reads a value, and puts it where it goes */
    struct column *column;       /* where the value goes; NULL: nowhere */
    int64_t size;                /* bits of a number; bytes of a fixed, -1: written; least of an item;
                                  * of a record: whether its attributes are set as object.__setattr__ does */
    Py_ssize_t count;            /* of the nodes below */
    const struct node **below;
    const char *data;            /* of a constant; the limits of a decimal */
    Py_ssize_t length;
    Py_ssize_t scale;            /* of a wide decimal */
    PyObject *value;             /* of events: a constant, a function, or a class and its attributes */
    Py_ssize_t *offsets;         /* of a record: the slot of each value below; -1: it is skipped */
    unsigned int version;        /* the version tag of a record's class when its slots were resolved */
};

typedef struct {
    PyObject_HEAD
    PyObject *described;         /* owns everything that nodes point to */
    Py_ssize_t count, width, top;
    struct node *nodes;
    struct column *columns;
    struct column **tops;        /* the columns of the table, which have an element per row */
    uint64_t seed;               /* of the hash of map keys: nobody can choose keys that collide */
    int busy;
} ColumnProgram;

struct input {                   /* the rest of one datum */
    const unsigned char *at, *end;
    int64_t empty;               /* items that took no bytes, so far */
    int depth;
    uint64_t seed;
    const struct node *failed;   /* the FAIL node that the datum reached, if it did */
    const unsigned char *limit;  /* of columns: the end of all data */
};

/* ---- reading ---- */

static inline size_t left(const struct input *in)
{
    return (size_t)(in->end - in->at);
}

static enum outcome read_more(struct input *in, uint64_t rest, int64_t *number)
{
    for (int shift = 7; ; shift += 7) {
        if (in->at == in->end || shift > 63)
            return BAD;
        const uint64_t byte = *in->at++;
        if (shift == 63 && byte > 1)
            return BAD;
        rest |= (byte & 127) << shift;
        if (byte < 128)
            break;
    }
    *number = (int64_t)((rest >> 1) ^ (~(rest & 1) + 1));
    return READ;
}

static inline enum outcome read_long(struct input *in, int64_t *number)
{
    if (in->at == in->end)
        return BAD;
    const uint64_t byte = *in->at++;
    if (byte >= 128)
        return read_more(in, byte & 127, number);
    *number = (int64_t)((byte >> 1) ^ (~(byte & 1) + 1));
    return READ;
}

/* Find bytes of a fixed size, or with the size before them, and step over them. */
static inline enum outcome read_span(
    struct input *in, int64_t size, const unsigned char **start, size_t *length)
{
    if (size < 0 && (read_long(in, &size) != READ || size < 0))
        return BAD;
    if ((uint64_t)size > left(in))
        return BAD;
    *start = in->at;
    *length = (size_t)size;
    in->at += size;
    return READ;
}

static enum outcome read_little_endian(struct input *in, size_t width, uint64_t *number)
{
    if (left(in) < width)
        return BAD;
    *number = 0;
    for (size_t i = 0; i < width; i++)
        *number |= (uint64_t)in->at[i] << (8 * i);
    in->at += width;
    return READ;
}

/* Read the number of items in the next block, 0 at the end of an array or map. A count is taken only
 * if its items can be there: each takes at least `least` bytes. */
static enum outcome read_block(struct input *in, int64_t least, int64_t *items)
{
    int64_t count, size;
    if (read_long(in, &count) != READ)
        return BAD;
    if (count < 0) {
        if (read_long(in, &size) != READ || count == INT64_MIN)
            return BAD;
        count = -count;
    }
    if (least > 0 && (uint64_t)count > left(in) / (uint64_t)least)
        return BAD;
    if (least == 0 && count > MAX_EMPTY_ITEMS - in->empty)
        return BAD;
    if (least == 0)
        in->empty += count;
    *items = count;
    return READ;
}

/* Return whether bytes are ASCII, as nearly all text is. */
static inline int is_ascii(const unsigned char *at, size_t size)
{
    uint64_t all = 0, eight;
    uint32_t four;
    if (size >= 8) {
        for (size_t i = 0; i + 8 < size; i += 8) {
            memcpy(&eight, at + i, 8);
            all |= eight;
        }
        memcpy(&eight, at + size - 8, 8);  /* some bytes may be seen twice */
        all |= eight;
    } else if (size >= 4) {
        memcpy(&four, at, 4);
        all = four;
        memcpy(&four, at + size - 4, 4);
        all |= four;
    } else {
        for (size_t i = 0; i < size; i++)
            all |= at[i];
    }
    return !(all & UINT64_C(0x8080808080808080));
}

static int is_other_utf8(const unsigned char *at, size_t size)
{
    const unsigned char *const end = at + size;
    while (at < end) {
        uint64_t eight;
        if (end - at >= 8) {
            memcpy(&eight, at, 8);
            if (!(eight & UINT64_C(0x8080808080808080))) {
                at += 8;
                continue;
            }
        }
        const unsigned first = *at;
        if (first < 0x80) {
            at++;
            continue;
        }
        const int more = 1 + (first >= 0xE0) + (first >= 0xF0);
        if (first < 0xC2 || first > 0xF4 || end - at <= more)
            return 0;
        const unsigned second = at[1];
        if ((second & 0xC0) != 0x80 || (first == 0xE0 && second < 0xA0)
            || (first == 0xED && second > 0x9F) || (first == 0xF0 && second < 0x90)
            || (first == 0xF4 && second > 0x8F))
            return 0;
        for (int i = 2; i <= more; i++)
            if ((at[i] & 0xC0) != 0x80)
                return 0;
        at += more + 1;
    }
    return 1;
}

static inline int is_utf8(const unsigned char *at, size_t size)
{
    return is_ascii(at, size) || is_other_utf8(at, size);
}

/* ---- skipping ---- */

static enum outcome skip_value(struct input *in, const struct node *node);

/* Skip an array or map; the bytes before a block with a negative count are trusted as in Python. */
static enum outcome skip_blocks(struct input *in, const struct node *node)
{
    const unsigned char *start;
    size_t length;
    int64_t count;
    for (;;) {
        if (read_long(in, &count) != READ)
            return BAD;
        if (count == 0)
            return READ;
        if (count < 0 && read_span(in, -1, &start, &length) != READ)
            return BAD;
        for (; count > 0 && node->size > 0; count--)
            for (Py_ssize_t i = 0; i < node->count; i++)
                if (skip_value(in, node->below[i]) != READ)
                    return BAD;
    }
}

static enum outcome skip_nested(struct input *in, const struct node *node)
{
    enum outcome outcome = READ;
    int64_t branch;
    if (in->depth == MAX_DEPTH)
        return BAD;
    in->depth++;
    if (node->kind == SKIP_BLOCKS) {
        outcome = skip_blocks(in, node);
    } else if (node->kind == UNION) {
        if (read_long(in, &branch) != READ || branch < 0 || branch >= node->count)
            return BAD;
        outcome = skip_value(in, node->below[branch]);
    } else {
        for (Py_ssize_t i = 0; outcome == READ && i < node->count; i++)
            outcome = skip_value(in, node->below[i]);
    }
    in->depth--;
    return outcome;
}

static enum outcome skip_value(struct input *in, const struct node *node)
{
    const unsigned char *start;
    size_t length;
    int64_t number;
    switch (node->kind) {
    case SKIP_NUMBER:
        return read_long(in, &number);
    case SKIP_BYTES:
        return read_span(in, -1, &start, &length);
    case SKIP_WIDTH:
        return read_span(in, node->size, &start, &length);
    case STEPS:
    case UNION:
    case SKIP_BLOCKS:
        return skip_nested(in, node);
    case FAIL:
        in->failed = node;
        return BAD;
    default:
        return BAD;
    }
}

/* ---- columns ---- */

static enum outcome resize(void *buffer, size_t size)
{
    void *moved = PyMem_RawRealloc(*(void **)buffer, size ? size : 1);
    if (moved == NULL)
        return NO_MEMORY;
    *(void **)buffer = moved;
    return READ;
}

/* Double a room so that it takes `least`; Arrow's offsets have 32 bits. The first room is the usual one. */
static enum outcome larger(size_t *room, size_t least, size_t usual)
{
    const size_t most = INT32_MAX;
    if (least > most)
        return TOO_LARGE;
    size_t wanted = *room ? *room * 2 : usual + usual / 16;
    wanted = wanted < MIN_ROOM ? MIN_ROOM : wanted;
    wanted = wanted < least ? least : wanted;
    *room = wanted > most ? most : wanted;
    return READ;
}

static enum outcome resize_cells(struct column *column, size_t room)
{
    const size_t head = HEAD_SIZES[column->layout];
    const enum outcome outcome = resize(&column->head, head + room * CELL_SIZES[column->layout]);
    if (outcome != READ)
        return outcome;
    memset(column->head, 0, head);
    column->cells = column->head + head;
    return READ;
}

static enum outcome grow_cells(struct column *column)
{
    size_t room = column->room;
    enum outcome outcome = larger(&room, column->size + 1, column->usual);
    if (outcome == READ && column->layout != PRESENCE)
        outcome = resize_cells(column, room);
    if (outcome == READ && column->has_nulls)
        outcome = resize(&column->valid, room);
    if (outcome == READ)
        column->room = room;
    return outcome;
}

static inline enum outcome reserve_cell(struct column *column)
{
    return column->size < column->room ? READ : grow_cells(column);
}

static enum outcome grow_text(struct column *column, size_t more)
{
    size_t room = column->text_room;
    enum outcome outcome = larger(&room, column->text_size + more, column->usual_text);
    if (outcome == READ)
        outcome = resize(&column->text, room);
    if (outcome == READ)
        column->text_room = room;
    return outcome;
}

static inline enum outcome reserve_text(struct column *column, size_t more)
{
    return more <= column->text_room - column->text_size ? READ : grow_text(column, more);
}

/* Count an element that is not null, whose cell is written. */
static inline void add_element(struct column *column)
{
    if (column->has_nulls)
        column->valid[column->size] = 1;
    column->size++;
}

static inline enum outcome add_word64(struct column *column, uint64_t word)
{
    const enum outcome outcome = reserve_cell(column);
    if (outcome != READ)
        return outcome;
    memcpy(column->cells + 8 * column->size, &word, 8);
    add_element(column);
    return READ;
}

static inline enum outcome add_double(struct column *column, double number)
{
    uint64_t word;
    memcpy(&word, &number, 8);
    return add_word64(column, word);
}

static inline enum outcome add_word32(struct column *column, uint32_t word)
{
    const enum outcome outcome = reserve_cell(column);
    if (outcome != READ)
        return outcome;
    memcpy(column->cells + 4 * column->size, &word, 4);
    add_element(column);
    return READ;
}

static enum outcome add_cell(struct column *column, const char *cell)
{
    const enum outcome outcome = reserve_cell(column);
    if (outcome != READ)
        return outcome;
    const size_t size = CELL_SIZES[column->layout];
    if (size)
        memcpy(column->cells + size * column->size, cell, size);
    add_element(column);
    return READ;
}

static inline enum outcome add_presence(struct column *column)
{
    const enum outcome outcome = reserve_cell(column);
    if (outcome == READ)
        add_element(column);
    return outcome;
}

/* Copy bytes: most texts are short, and a call costs more than two moves of bytes, some of them twice. */
static inline void copy(char *to, const char *from, size_t size)
{
    if (size > 32) {
        memcpy(to, from, size);
    } else if (size >= 16) {
        char first[16], last[16];
        memcpy(first, from, 16);
        memcpy(last, from + size - 16, 16);
        memcpy(to, first, 16);
        memcpy(to + size - 16, last, 16);
    } else if (size >= 8) {
        uint64_t first, last;
        memcpy(&first, from, 8);
        memcpy(&last, from + size - 8, 8);
        memcpy(to, &first, 8);
        memcpy(to + size - 8, &last, 8);
    } else if (size >= 4) {
        uint32_t first, last;
        memcpy(&first, from, 4);
        memcpy(&last, from + size - 4, 4);
        memcpy(to, &first, 4);
        memcpy(to + size - 4, &last, 4);
    } else {
        for (size_t i = 0; i < size; i++)
            to[i] = from[i];
    }
}

static enum outcome add_text(struct column *column, const void *text, size_t size)
{
    const enum outcome outcome = reserve_text(column, size);
    if (outcome != READ)
        return outcome;
    if (size)
        copy(column->text + column->text_size, text, size);
    column->text_size += size;
    return add_word32(column, (uint32_t)column->text_size);
}

/* End a list: its items are those that were added since the list before it ended. */
static enum outcome add_items(struct column *column)
{
    return add_word32(column, (uint32_t)column->children[0]->size);
}

static uint32_t end_at(const struct column *column, size_t element)
{
    uint32_t end = 0;
    if (element)
        memcpy(&end, column->cells + 4 * (element - 1), 4);
    return end;
}

/* Add a null, and one to every member of a struct: members are as long as their struct. */
static enum outcome add_null(struct column *column)
{
    static const char nothing[16];
    enum outcome outcome = READ;
    if (!column->has_nulls) {
        outcome = resize(&column->valid, column->room);
        if (outcome != READ)
            return outcome;
        memset(column->valid, 1, column->size);
        column->has_nulls = 1;
    }
    if (column->layout == VARIABLE)
        outcome = add_word32(column, (uint32_t)column->text_size);
    else if (column->layout == ITEMS)
        outcome = add_items(column);
    else
        outcome = add_cell(column, nothing);
    if (outcome != READ)
        return outcome;
    column->valid[column->size - 1] = 0;
    for (Py_ssize_t i = 0; column->layout == PRESENCE && i < column->count; i++)
        if ((outcome = add_null(column->children[i])) != READ)
            return outcome;
    return READ;
}

/* Remove all but the first `size` elements; a column may also be one short of them. */
static void cut(struct column *column, size_t size)
{
    if (column->size > size)
        column->size = size;
    if (column->layout == VARIABLE)
        column->text_size = end_at(column, column->size);
    if (column->layout == ITEMS)
        size = end_at(column, column->size);
    for (Py_ssize_t i = 0; i < column->count; i++)
        cut(column->children[i], size);
}

/* ---- values of columns ---- */

static enum outcome fill_integer(struct input *in, const struct node *node)
{
    int64_t number;
    if (read_long(in, &number) != READ)
        return BAD;
    if (node->size == 32 && (number < INT32_MIN || number > INT32_MAX))
        return BAD;
    if (node->kind == FROM_MILLIS && (number < -MAX_MILLIS || number > MAX_MILLIS))
        return BAD;
    if (node->column == NULL)
        return READ;
    switch (node->kind) {
    case AS_DOUBLE:
        return add_double(node->column, (double)number);
    case AS_FLOAT:
        return add_double(node->column, (double)(float)(double)number);
    case FROM_MILLIS:
        return add_word64(node->column, (uint64_t)(number * 1000));
    case FROM_NANOS:
        number = number / 1000 - (number % 1000 < 0);
        return add_word64(node->column, (uint64_t)number);
    default:
        return node->column->layout == WORD32 ? add_word32(node->column, (uint32_t)(int32_t)number)
                                              : add_word64(node->column, (uint64_t)number);
    }
}

static enum outcome fill_long(struct input *in, const struct node *node)
{
    int64_t number;
    return read_long(in, &number) == READ ? add_word64(node->column, (uint64_t)number) : BAD;
}

static enum outcome fill_real(struct input *in, const struct node *node)
{
    uint64_t bits;
    float single;
    if (read_little_endian(in, node->kind == DOUBLE ? 8 : 4, &bits) != READ)
        return BAD;
    if (node->column == NULL)
        return READ;
    if (node->kind != FLOAT)
        return add_word64(node->column, bits);
    const uint32_t half = (uint32_t)bits;
    memcpy(&single, &half, 4);
    return add_double(node->column, (double)single);
}

static enum outcome fill_boolean(struct input *in, const struct node *node)
{
    if (in->at == in->end || *in->at > 1)
        return BAD;
    const char bit = (char)*in->at++;
    return node->column == NULL ? READ : add_cell(node->column, &bit);
}

/* Add a short text with two wide moves: most texts are short, and each has another size. SHORT bytes can
 * be read and written. */
static inline enum outcome add_short_text(struct column *column, const unsigned char *text, size_t size)
{
    static const unsigned char not_ascii[2 * SHORT] = {
        0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
        0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80
    };
    uint64_t words[SHORT / 8], masks[SHORT / 8], found = 0;
    memcpy(words, text, SHORT);
    memcpy(masks, not_ascii + SHORT - size, SHORT);  /* of the first `size` bytes */
    for (int i = 0; i < SHORT / 8; i++)
        found |= words[i] & masks[i];
    if (found && !is_other_utf8(text, size))
        return BAD;
    memcpy(column->text + column->text_size, words, SHORT);
    column->text_size += size;
    return add_word32(column, (uint32_t)column->text_size);
}

static enum outcome fill_text(struct input *in, const struct node *node)
{
    const unsigned char *start;
    size_t size;
    struct column *const column = node->column;
    if (read_span(in, node->size, &start, &size) != READ)
        return BAD;
    if (node->kind == TEXT && column != NULL && size <= SHORT && in->limit - start >= SHORT
        && column->text_room - column->text_size >= SHORT)
        return add_short_text(column, start, size);
    if (node->kind == TEXT && !is_utf8(start, size))
        return BAD;
    return column == NULL ? READ : add_text(column, start, size);
}

static enum outcome fill_uuid(struct input *in, const struct node *node)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *raw;
    size_t size;
    char text[UUID_TEXT_SIZE], *at = text;
    if (read_span(in, UUID_SIZE, &raw, &size) != READ)
        return BAD;
    for (int i = 0; i < UUID_SIZE; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *at++ = '-';
        *at++ = digits[raw[i] >> 4];
        *at++ = digits[raw[i] & 15];
    }
    return add_text(node->column, text, UUID_TEXT_SIZE);
}

/* Find a big-endian number that is between the limits of its node: the least number that does not
 * fit below, then the one above. Signs before the number are left out. */
static enum outcome read_decimal(
    struct input *in, const struct node *node, const unsigned char **start, size_t *size)
{
    const size_t width = (size_t)node->length / 2;
    if (read_span(in, node->size, start, size) != READ)
        return BAD;
    if (*size == 0)
        return READ;
    const unsigned char sign = **start >= 0x80 ? 0xFF : 0;
    for (; *size > width && **start == sign; (*size)--)
        (*start)++;
    if (*size > width)
        return BAD;
    const unsigned char *limit = (const unsigned char *)node->data + (sign ? 0 : width);
    for (size_t i = 0; i < width; i++) {
        const unsigned char byte = i < width - *size ? sign : (*start)[i - (width - *size)];
        if (byte != limit[i])
            return (byte > limit[i]) == (sign != 0) ? READ : BAD;
    }
    return BAD;
}

static enum outcome fill_decimal(struct input *in, const struct node *node)
{
    const unsigned char *start;
    size_t size;
    if (read_decimal(in, node, &start, &size) != READ)
        return BAD;
    if (node->column == NULL)
        return READ;
    uint64_t words[2];
    words[0] = words[1] = size && *start >= 0x80 ? UINT64_MAX : 0;
    for (size_t i = 0; i < size; i++) {
        words[1] = words[1] << 8 | words[0] >> 56;
        words[0] = words[0] << 8 | start[i];
    }
    return add_cell(node->column, (const char *)words);
}

/* Write the digits of a big-endian number to `digits`, the last one first; return how many. `rest`
 * is the number's absolute value, which is used up. */
static size_t write_digits(unsigned char *rest, size_t size, unsigned char *digits)
{
    size_t count = 0;
    for (size_t lead = 0; lead < size; ) {
        if (rest[lead] == 0) {
            lead++;
            continue;
        }
        unsigned over = 0;
        for (size_t i = lead; i < size; i++) {
            over = over << 8 | rest[i];
            rest[i] = (unsigned char)(over / 10);
            over %= 10;
        }
        digits[count++] = (unsigned char)over;
    }
    return count;
}

/* Fill a decimal that is too wide for a number: as text with `scale` digits after the point. */
static enum outcome fill_wide_decimal(struct input *in, const struct node *node)
{
    const unsigned char *start;
    size_t size, scale = (size_t)node->scale;
    if (read_decimal(in, node, &start, &size) != READ)
        return BAD;
    enum outcome outcome = reserve_text(node->column, 3 * size + scale + 4);
    unsigned char *rest = outcome == READ ? PyMem_RawCalloc(4 * size + scale + 2, 1) : NULL;
    if (rest == NULL)
        return outcome == READ ? NO_MEMORY : outcome;
    unsigned char *const digits = rest + size;
    char *at = node->column->text + node->column->text_size;
    if (size && *start >= 0x80) {
        *at++ = '-';
        unsigned carry = 1;
        for (size_t i = size; i-- > 0; carry >>= 8) {
            carry += 0xFF & ~start[i];
            rest[i] = (unsigned char)carry;
        }
    } else if (size) {
        memcpy(rest, start, size);
    }
    size_t count = write_digits(rest, size, digits);
    for (count = count > scale ? count : scale + 1; count-- > 0; ) {
        *at++ = (char)('0' + digits[count]);
        if (count == scale && scale)
            *at++ = '.';
    }
    PyMem_RawFree(rest);
    node->column->text_size = (size_t)(at - node->column->text);
    return add_word32(node->column, (uint32_t)node->column->text_size);
}

/* ---- keys of maps ---- */

static int same_keys(const struct column *keys, size_t one, size_t other)
{
    const uint32_t a = end_at(keys, one), b = end_at(keys, other);
    const uint32_t size = end_at(keys, one + 1) - a;
    if (end_at(keys, other + 1) - b != size)
        return 0;
    /* As long as all keys are empty, there is no text. */
    return size == 0 || memcmp(keys->text + a, keys->text + b, size) == 0;
}

static int few_keys_repeat(const struct column *keys, size_t first)
{
    for (size_t i = first; i < keys->size; i++)
        for (size_t other = first; other < i; other++)
            if (same_keys(keys, i, other))
                return 1;
    return 0;
}

static uint64_t hash_key(const struct column *keys, size_t key, uint64_t seed)
{
    const uint32_t end = end_at(keys, key + 1);
    uint64_t mixed = seed ^ (end - end_at(keys, key));
    for (uint32_t i = end_at(keys, key); i < end; i++) {
        mixed = (mixed ^ (unsigned char)keys->text[i]) * UINT64_C(0x9E3779B97F4A7C15);
        mixed ^= mixed >> 29;
    }
    return mixed;
}

/* Do the same with a hash table, so that the time does not grow with the square of the keys. */
static enum outcome many_keys_repeat(
    const struct column *keys, size_t first, uint64_t seed, int *repeat)
{
    size_t room = 1;
    while (room < 2 * (keys->size - first))
        room *= 2;
    uint32_t *table = PyMem_RawCalloc(room, sizeof *table);  /* 0: free; else a key's number + 1 */
    if (table == NULL)
        return NO_MEMORY;
    *repeat = 0;
    for (size_t i = first; i < keys->size && !*repeat; i++) {
        size_t place = (size_t)hash_key(keys, i, seed) & (room - 1);
        for (; table[place] && !*repeat; place = (place + 1) & (room - 1))
            *repeat = same_keys(keys, i, table[place] - 1);
        table[place] = (uint32_t)i + 1;
    }
    PyMem_RawFree(table);
    return READ;
}

static enum outcome check_keys(const struct input *in, const struct column *keys, size_t first)
{
    int repeat;
    if (keys->size - first <= FEW_KEYS) {
        repeat = few_keys_repeat(keys, first);
    } else {
        const enum outcome outcome = many_keys_repeat(keys, first, in->seed, &repeat);
        if (outcome != READ)
            return outcome;
    }
    return repeat ? BAD : READ;
}

/* ---- what holds values ---- */

/* Read the value of a node. A function of its own for each kind has little to save and restore, and its
 * call is foreseen at the place where the node is. */
static inline enum outcome fill_value(struct input *in, const struct node *node)
{
    return node->fill(in, node);
}

static enum outcome fill_key(struct input *in, struct column *keys)
{
    const unsigned char *start;
    size_t size;
    if (read_span(in, -1, &start, &size) != READ || !is_utf8(start, size))
        return BAD;
    return add_text(keys, start, size);
}

/* Fill a list or a map. Of KEYS, a map, the column holds the keys of open maps alone. */
static enum outcome fill_list(struct input *in, const struct node *node)
{
    struct column *keys = node->kind == MAP ? node->column->children[0]
        : node->kind == KEYS ? node->column : NULL;
    const size_t first = keys == NULL ? 0 : keys->size;
    int64_t items;
    for (;;) {
        enum outcome outcome = read_block(in, node->size, &items);
        if (outcome != READ)
            return outcome;
        if (items == 0)
            break;
        for (; items > 0; items--) {
            if (keys != NULL && (outcome = fill_key(in, keys)) != READ)
                return outcome;
            if ((outcome = fill_value(in, node->below[0])) != READ)
                return outcome;
        }
    }
    if (keys != NULL) {
        const enum outcome outcome = check_keys(in, keys, first);
        if (outcome != READ)
            return outcome;
    }
    if (node->kind == KEYS)
        cut(keys, first);
    return node->kind == KEYS || node->column == NULL ? READ : add_items(node->column);
}

static enum outcome fill_steps(struct input *in, const struct node *node)
{
    enum outcome outcome = node->column == NULL ? READ : add_presence(node->column);
    for (Py_ssize_t i = 0; outcome == READ && i < node->count; i++)
        outcome = fill_value(in, node->below[i]);
    return outcome;
}

static inline enum outcome fill_nested(struct input *in, const struct node *node, filler *fill)
{
    if (in->depth == MAX_DEPTH)
        return BAD;
    in->depth++;
    const enum outcome outcome = fill(in, node);
    in->depth--;
    return outcome;
}

static enum outcome fill_nested_steps(struct input *in, const struct node *node)
{
    return fill_nested(in, node, fill_steps);
}

static enum outcome fill_nested_list(struct input *in, const struct node *node)
{
    return fill_nested(in, node, fill_list);
}

static enum outcome fill_union(struct input *in, const struct node *node)
{
    int64_t branch;
    if (read_long(in, &branch) != READ || branch < 0 || branch >= node->count)
        return BAD;
    return fill_value(in, node->below[branch]);
}

static enum outcome fill_null(struct input *Py_UNUSED(in), const struct node *node)
{
    return add_null(node->column);
}

static enum outcome fill_constant(struct input *Py_UNUSED(in), const struct node *node)
{
    return node->column->layout == VARIABLE
        ? add_text(node->column, node->data, (size_t)node->length)
        : add_cell(node->column, node->data);
}

static enum outcome fill_constant_list(struct input *Py_UNUSED(in), const struct node *node)
{
    return add_items(node->column);
}

static filler *filler_of(const struct node *node)
{
    static filler *const fillers[KINDS] = {
        [STEPS] = fill_nested_steps, [UNION] = fill_union, [NULL_VALUE] = fill_null,
        [CONSTANT] = fill_constant, [CONSTANT_LIST] = fill_constant_list, [INTEGER] = fill_integer,
        [AS_DOUBLE] = fill_integer, [AS_FLOAT] = fill_integer, [FROM_MILLIS] = fill_integer,
        [FROM_NANOS] = fill_integer, [FLOAT] = fill_real, [DOUBLE] = fill_real, [UNSIGNED] = fill_real,
        [BOOLEAN] = fill_boolean, [BYTES] = fill_text, [TEXT] = fill_text, [UUID_FIXED] = fill_uuid,
        [DECIMAL] = fill_decimal, [WIDE_DECIMAL] = fill_wide_decimal, [LIST] = fill_nested_list,
        [MAP] = fill_nested_list, [KEYS] = fill_nested_list
    };
    if (node->kind == INTEGER && node->size != 32 && node->column != NULL && node->column->layout == WORD64)
        return fill_long;
    return fillers[node->kind] == NULL ? skip_value : fillers[node->kind];
}

/* ---- a batch of datums ---- */

static enum outcome fill_row(
    ColumnProgram *self, const Py_buffer *data, int64_t start, int64_t end, int32_t *failed)
{
    const unsigned char *const bytes = data->buf;
    struct input in = {bytes + start, bytes + end, 0, 0, self->seed, NULL, bytes + data->len};
    const enum outcome outcome = fill_value(&in, &self->nodes[0]);
    *failed = in.failed == NULL ? -1 : (int32_t)(in.failed - self->nodes);
    return outcome == READ && in.at != in.end ? BAD : outcome;
}

/* Ask for the bytes of a datum that is read soon. Datums may be in another order than their bytes, and
 * a pass that reads only the first of each waits longer for them than it works. */
static inline void prefetch(const Py_buffer *data, int64_t start, int64_t end)
{
    const unsigned char *bytes = data->buf;
    if (start < 0 || end > data->len)
        return;
    end = end - start > PREFETCHED_BYTES ? start + PREFETCHED_BYTES : end;
    for (; start < end; start += CACHE_LINE)
        __builtin_prefetch(bytes + start);
}

/* Fill the columns with the datums at `starts`..`ends`. Mark those that are bad, with the number of the
 * FAIL node that they reached, or -1. */
static enum outcome fill_rows(
    ColumnProgram *self, const Py_buffer *data, const int64_t *starts, const int64_t *ends,
    Py_ssize_t count, char *bad, int32_t *failed)
{
    size_t rows = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (i + AHEAD < count)
            prefetch(data, starts[i + AHEAD], ends[i + AHEAD]);
        const int whole = starts[i] >= 0 && starts[i] <= ends[i] && ends[i] <= data->len;
        failed[i] = -1;
        const enum outcome outcome
            = whole ? fill_row(self, data, starts[i], ends[i], &failed[i]) : BAD;
        if (outcome < READ)
            return outcome;
        bad[i] = (char)outcome;
        if (outcome == READ) {
            rows++;
            continue;
        }
        for (Py_ssize_t top = 0; top < self->top; top++)
            cut(self->tops[top], rows);
    }
    return READ;
}

/* Return bytes as bits, the first in the lowest. */
static PyObject *packed_bits(const char *from, size_t count)
{
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((count + 7) / 8));
    if (made == NULL)
        return NULL;
    unsigned char *to = (unsigned char *)PyBytes_AS_STRING(made);
    for (; count >= 8; count -= 8, from += 8) {
        int bits = 0;
        for (int i = 0; i < 8; i++)
            bits |= (from[i] & 1) << i;
        *to++ = (unsigned char)bits;
    }
    if (count)
        *to = 0;
    for (size_t i = 0; i < count; i++)
        *to |= (unsigned char)((from[i] & 1) << i);
    return made;
}

/* Memory that a column has given away: a buffer of bytes, until nobody uses it. */
typedef struct {
    PyObject_HEAD
    char *memory;
    Py_ssize_t size;
} Cells;

static int Cells_getbuffer(Cells *self, Py_buffer *view, int flags)
{
    return PyBuffer_FillInfo(view, (PyObject *)self, self->memory, self->size, 1, flags);
}

static void Cells_dealloc(Cells *self)
{
    PyMem_RawFree(self->memory);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyBufferProcs Cells_buffer = {.bf_getbuffer = (getbufferproc)Cells_getbuffer};

static PyTypeObject Cells_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "headworks._native._decoder.Cells",
    .tp_doc = "The memory of a decoded column, as a buffer.",
    .tp_basicsize = sizeof(Cells),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)Cells_dealloc,
    .tp_as_buffer = &Cells_buffer,
};

/* Give memory away. It is cut, if that succeeds, when more than an eighth of it was never used. */
static PyObject *given(char **memory, size_t size, size_t room)
{
    Cells *made = PyObject_New(Cells, &Cells_Type);
    if (made == NULL)
        return NULL;
    if (size < room - room / 8)
        resize(memory, size);
    made->memory = *memory;
    made->size = (Py_ssize_t)size;
    *memory = NULL;
    return (PyObject *)made;
}

static PyObject *cells_of(struct column *column)
{
    const size_t size = CELL_SIZES[column->layout], head = HEAD_SIZES[column->layout];
    if (column->layout == PRESENCE)
        return Py_NewRef(Py_None);
    if (column->layout == BITS)
        return packed_bits(column->cells, column->size);
    if (column->head == NULL && resize_cells(column, 0) != READ)
        return PyErr_NoMemory();
    return given(&column->head, head + size * column->size, head + size * column->room);
}

static PyObject *text_of(struct column *column)
{
    if (column->layout != VARIABLE)
        return Py_NewRef(Py_None);
    if (column->text == NULL && resize(&column->text, 0) != READ)
        return PyErr_NoMemory();
    return given(&column->text, column->text_size, column->text_room);
}

/* Return (elements, nulls, validity or None, cells or None, text or None) of a column. */
static PyObject *taken(struct column *column)
{
    PyObject *valid = NULL, *cells = NULL, *text = NULL, *made = NULL;
    size_t nulls = 0;
    for (size_t i = 0; column->has_nulls && i < column->size; i++)
        nulls += !column->valid[i];
    valid = nulls ? packed_bits((const char *)column->valid, column->size) : Py_NewRef(Py_None);
    if (valid != NULL)
        cells = cells_of(column);
    if (cells != NULL)
        text = text_of(column);
    if (text != NULL)
        made = Py_BuildValue("nnOOO", (Py_ssize_t)column->size, (Py_ssize_t)nulls, valid, cells, text);
    Py_XDECREF(valid);
    Py_XDECREF(cells);
    Py_XDECREF(text);
    column->usual = column->size;
    column->usual_text = column->text_size;
    column->room = column->head == NULL ? 0 : column->room;
    column->text_room = column->text == NULL ? 0 : column->text_room;
    return made;
}

/* Return what every column holds, by number. */
static PyObject *take_columns(const ColumnProgram *self)
{
    PyObject *made = PyTuple_New(self->width);
    for (Py_ssize_t i = 0; made != NULL && i < self->width; i++) {
        PyObject *one = taken(&self->columns[i]);
        if (one == NULL)
            Py_CLEAR(made);
        else
            PyTuple_SET_ITEM(made, i, one);
    }
    return made;
}

static void empty_columns(ColumnProgram *self)
{
    for (Py_ssize_t i = 0; i < self->width; i++) {
        struct column *column = &self->columns[i];
        column->size = column->text_size = 0;
        column->has_nulls = 0;
    }
}

static PyObject *numbers_of(const char *bad, Py_ssize_t count)
{
    PyObject *made = PyList_New(0);
    for (Py_ssize_t i = 0; made != NULL && i < count; i++) {
        if (!bad[i])
            continue;
        PyObject *number = PyLong_FromSsize_t(i);
        if (number == NULL || PyList_Append(made, number) < 0)
            Py_CLEAR(made);
        Py_XDECREF(number);
    }
    return made;
}

/* Return the number of the FAIL node of each bad datum, or -1. */
static PyObject *nodes_of(const char *bad, const int32_t *failed, Py_ssize_t count)
{
    PyObject *made = PyList_New(0);
    for (Py_ssize_t i = 0; made != NULL && i < count; i++) {
        if (!bad[i])
            continue;
        PyObject *number = PyLong_FromLong(failed[i]);
        if (number == NULL || PyList_Append(made, number) < 0)
            Py_CLEAR(made);
        Py_XDECREF(number);
    }
    return made;
}

static PyObject *decode_spans(
    ColumnProgram *self, const Py_buffer *data, const Py_buffer *starts, const Py_buffer *ends)
{
    const Py_ssize_t count = starts->len / 8;
    PyObject *columns = NULL, *wrong = NULL, *nodes = NULL, *made = NULL;
    char *bad = PyMem_Calloc((size_t)count + 1, 1);
    int32_t *failed = PyMem_Calloc((size_t)count + 1, sizeof(int32_t));
    if (bad == NULL || failed == NULL) {
        PyMem_Free(bad);
        PyMem_Free(failed);
        return PyErr_NoMemory();
    }
    enum outcome outcome;
    self->busy = 1;
    Py_BEGIN_ALLOW_THREADS
    outcome = fill_rows(self, data, starts->buf, ends->buf, count, bad, failed);
    Py_END_ALLOW_THREADS
    if (outcome == NO_MEMORY)
        PyErr_NoMemory();
    else if (outcome == TOO_LARGE)
        PyErr_SetString(PyExc_OverflowError, "the values of a column take more than 2 GiB");
    else
        columns = take_columns(self);
    empty_columns(self);
    self->busy = 0;
    if (columns != NULL)
        wrong = numbers_of(bad, count);
    if (wrong != NULL)
        nodes = nodes_of(bad, failed, count);
    if (nodes != NULL)
        made = PyTuple_Pack(3, columns, wrong, nodes);
    Py_XDECREF(columns);
    Py_XDECREF(wrong);
    Py_XDECREF(nodes);
    PyMem_Free(bad);
    PyMem_Free(failed);
    return made;
}

static PyObject *ColumnProgram_decode(ColumnProgram *self, PyObject *given)
{
    Py_buffer data, starts, ends;
    PyObject *made = NULL;
    if (!PyArg_ParseTuple(given, "y*y*y*", &data, &starts, &ends))
        return NULL;
    if (self->busy)
        PyErr_SetString(PyExc_RuntimeError, "another thread decodes with this program");
    else if (starts.len != ends.len || starts.len % 8)
        PyErr_SetString(PyExc_ValueError, "starts and ends are numbers of 64 bits, as many of each");
    else
        made = decode_spans(self, &data, &starts, &ends);
    PyBuffer_Release(&data);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&ends);
    return made;
}

/* ---- a verdict alone ---- */

struct spans {                   /* where values are, and the schema id of each */
    Py_buffer data, ids, places;
};

/* Mark the values with this schema id that are not exactly one datum. */
static enum outcome check_rows(ColumnProgram *self, const struct spans *given, int64_t id, char *bad)
{
    const int64_t *ids = given->ids.buf, *places = given->places.buf;
    const unsigned char *bytes = given->data.buf;
    for (Py_ssize_t i = 0; i < given->ids.len / 8; i++) {
        if (ids[i] != id)
            continue;
        const int64_t start = places[2 * i], end = places[2 * i + 1];
        if (start < 0 || start > end || end > given->data.len) {
            bad[i] = 1;
            continue;
        }
        struct input in = {
            bytes + start, bytes + end, 0, MAX_DEPTH - MAX_CHECK_DEPTH, self->seed, NULL,
            bytes + given->data.len
        };
        const enum outcome outcome = fill_value(&in, &self->nodes[0]);
        if (outcome < READ)
            return outcome;
        bad[i] = outcome != READ || in.at != in.end;
        empty_columns(self);  /* of the keys of a map that was not read to its end */
    }
    return READ;
}

static PyObject *check_spans(ColumnProgram *self, const struct spans *given, int64_t id)
{
    const Py_ssize_t count = given->ids.len / 8;
    enum outcome outcome;
    char *bad = PyMem_Calloc((size_t)count + 1, 1);
    if (bad == NULL)
        return PyErr_NoMemory();
    self->busy = 1;
    Py_BEGIN_ALLOW_THREADS
    outcome = check_rows(self, given, id, bad);
    Py_END_ALLOW_THREADS
    self->busy = 0;
    PyObject *made = outcome < READ ? PyErr_NoMemory() : numbers_of(bad, count);
    empty_columns(self);
    PyMem_Free(bad);
    return made;
}

static PyObject *ColumnProgram_check(ColumnProgram *self, PyObject *given)
{
    struct spans spans;
    long long id;
    PyObject *made = NULL;
    if (!PyArg_ParseTuple(given, "y*y*y*L", &spans.data, &spans.ids, &spans.places, &id))
        return NULL;
    if (self->busy)
        PyErr_SetString(PyExc_RuntimeError, "another thread decodes with this program");
    else if (spans.ids.len % 8 || spans.places.len != 2 * spans.ids.len)
        PyErr_SetString(PyExc_ValueError, "ids and spans are numbers of 64 bits, two for each id");
    else
        made = check_spans(self, &spans, id);
    PyBuffer_Release(&spans.data);
    PyBuffer_Release(&spans.ids);
    PyBuffer_Release(&spans.places);
    return made;
}

/* ---- making a program ---- */

static int reject_description(const char *why)
{
    PyErr_SetString(PyExc_TypeError, why);
    return -1;
}

/* Return the place of a name in a list of names; -1 if it is none of them. */
static int name_among(PyObject *name, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (PyUnicode_CompareWithASCIIString(name, names[i]) == 0)
            return i;
    return reject_description("there is no such kind of node or column");
}

static int number_at(PyObject *numbers, Py_ssize_t i, Py_ssize_t count, Py_ssize_t *number)
{
    *number = PyLong_Check(PyTuple_GET_ITEM(numbers, i))
        ? PyLong_AsSsize_t(PyTuple_GET_ITEM(numbers, i)) : -1;
    if (*number >= 0 && *number < count)
        return 0;
    PyErr_Clear();
    return reject_description("there is no such node or column");
}

/* Return whether a node of a kind can read a value and store nothing. */
static int checks(const struct node *node)
{
    switch (node->kind) {
    case STEPS:
    case UNION:
    case FAIL:
    case INTEGER:
    case FROM_MILLIS:
    case FLOAT:
    case DOUBLE:
    case UNSIGNED:
    case BOOLEAN:
    case BYTES:
    case TEXT:
    case LIST:
    case SKIP_NUMBER:
    case SKIP_BYTES:
    case SKIP_WIDTH:
    case SKIP_BLOCKS:
        return 1;
    case DECIMAL:
        return node->data != NULL && node->length % 2 == 0;
    default:
        return 0;
    }
}

/* Return whether a node of a kind may write to its column. */
static int takes(const struct node *node)
{
    const struct column *column = node->column;
    if (column == NULL)
        return checks(node);
    switch (node->kind) {
    case STEPS:
        return column->layout == PRESENCE;
    case NULL_VALUE:
        return 1;
    case CONSTANT:
        if (node->data == NULL || column->layout == ITEMS)
            return 0;
        return column->layout == VARIABLE || (size_t)node->length == CELL_SIZES[column->layout];
    case CONSTANT_LIST:
    case LIST:
        return column->layout == ITEMS && column->count >= 1;
    case MAP:
        return column->layout == ITEMS && column->count == 2 && column->children[0]->layout == VARIABLE;
    case INTEGER:
        return column->layout == WORD64 || (column->layout == WORD32 && node->size == 32);
    case AS_DOUBLE:
    case AS_FLOAT:
    case FROM_MILLIS:
    case FROM_NANOS:
    case FLOAT:
    case DOUBLE:
    case UNSIGNED:
        return column->layout == WORD64;
    case BOOLEAN:
        return column->layout == BITS;
    case BYTES:
    case TEXT:
    case UUID_FIXED:
    case KEYS:
        return column->layout == VARIABLE;
    case DECIMAL:
        return column->layout == WORD128 && node->data != NULL && node->length % 2 == 0;
    case WIDE_DECIMAL:
        return column->layout == VARIABLE && node->data != NULL && node->scale >= 0;
    default:
        return 0;
    }
}

static int read_column(ColumnProgram *self, struct column *column, PyObject *described)
{
    PyObject *name, *children;
    Py_ssize_t child;
    if (!PyTuple_Check(described) || !PyArg_ParseTuple(described, "UO!", &name, &PyTuple_Type, &children))
        return PyErr_Occurred() ? -1 : reject_description("a column is (layout, children)");
    const int layout = name_among(name, LAYOUT_NAMES, LAYOUTS);
    if (layout < 0)
        return -1;
    column->layout = (enum layout)layout;
    column->children = PyMem_Calloc((size_t)PyTuple_GET_SIZE(children) + 1, sizeof *column->children);
    if (column->children == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (; column->count < PyTuple_GET_SIZE(children); column->count++) {
        if (number_at(children, column->count, self->width, &child) < 0)
            return -1;
        if (child <= column - self->columns)  /* so that no column holds itself */
            return reject_description("a column's children have higher numbers");
        column->children[column->count] = &self->columns[child];
    }
    if (column->count && column->layout != PRESENCE && column->layout != ITEMS)
        return reject_description("only structs and lists have children");
    return 0;
}

static int read_columns(ColumnProgram *self, PyObject *described, PyObject *tops)
{
    Py_ssize_t top;
    self->columns = PyMem_Calloc((size_t)PyTuple_GET_SIZE(described) + 1, sizeof *self->columns);
    self->tops = PyMem_Calloc((size_t)PyTuple_GET_SIZE(tops) + 1, sizeof *self->tops);
    if (self->columns == NULL || self->tops == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->width = PyTuple_GET_SIZE(described);
    for (Py_ssize_t i = 0; i < self->width; i++)
        if (read_column(self, &self->columns[i], PyTuple_GET_ITEM(described, i)) < 0)
            return -1;
    for (; self->top < PyTuple_GET_SIZE(tops); self->top++) {
        if (number_at(tops, self->top, self->width, &top) < 0)
            return -1;
        self->tops[self->top] = &self->columns[top];
    }
    return 0;
}

/* Read what nodes of both programs have in common; `column` is the number of the column. */
static int read_common(
    struct node *nodes, Py_ssize_t count, struct node *node, PyObject *described, Py_ssize_t *column)
{
    PyObject *name, *below;
    Py_ssize_t at;
    long long size;
    if (!PyTuple_Check(described) || !PyArg_ParseTuple(
            described, "UO!nLz#nO", &name, &PyTuple_Type, &below, column, &size, &node->data,
            &node->length, &node->scale, &node->value))
        return PyErr_Occurred() ? -1 : reject_description("a node is (kind, below, column, ...)");
    const int kind = name_among(name, KIND_NAMES, KINDS);
    if (kind < 0)
        return -1;
    node->kind = (enum kind)kind;
    node->size = size;
    node->below = PyMem_Calloc((size_t)PyTuple_GET_SIZE(below) + 1, sizeof *node->below);
    if (node->below == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (; node->count < PyTuple_GET_SIZE(below); node->count++) {
        if (number_at(below, node->count, count, &at) < 0)
            return -1;
        node->below[node->count] = &nodes[at];
    }
    if ((node->kind == LIST || node->kind == MAP || node->kind == KEYS) && (node->count != 1 || node->size < 0))
        return reject_description("a list has one node below it");
    return 0;
}

static int read_node(ColumnProgram *self, struct node *node, PyObject *described)
{
    Py_ssize_t column;
    if (read_common(self->nodes, self->count, node, described, &column) < 0)
        return -1;
    if (column >= self->width)
        return reject_description("there is no such column");
    node->column = column < 0 ? NULL : &self->columns[column];
    node->fill = filler_of(node);
    return takes(node) ? 0 : reject_description("a node of this kind does not write to this column");
}

static int read_nodes(ColumnProgram *self)
{
    self->nodes = PyMem_Calloc((size_t)PyTuple_GET_SIZE(self->described) + 1, sizeof *self->nodes);
    if (self->nodes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->count = PyTuple_GET_SIZE(self->described);
    for (Py_ssize_t i = 0; i < self->count; i++)
        if (read_node(self, &self->nodes[i], PyTuple_GET_ITEM(self->described, i)) < 0)
            return -1;
    return self->count ? 0 : reject_description("a program has at least one node");
}

static PyObject *ColumnProgram_new(PyTypeObject *type, PyObject *given, PyObject *named)
{
    static char *names[] = {"nodes", "columns", "tops", "seed", NULL};
    PyObject *nodes, *columns, *tops;
    unsigned long long seed;
    if (!PyArg_ParseTupleAndKeywords(
            given, named, "O!O!O!K", names, &PyTuple_Type, &nodes, &PyTuple_Type, &columns,
            &PyTuple_Type, &tops, &seed))
        return NULL;
    ColumnProgram *self = (ColumnProgram *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->described = Py_NewRef(nodes);
    self->seed = seed;
    if (read_columns(self, columns, tops) < 0 || read_nodes(self) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void ColumnProgram_dealloc(ColumnProgram *self)
{
    for (Py_ssize_t i = 0; i < self->count; i++)
        PyMem_Free(self->nodes[i].below);
    for (Py_ssize_t i = 0; i < self->width; i++) {
        PyMem_Free(self->columns[i].children);
        PyMem_RawFree(self->columns[i].head);
        PyMem_RawFree(self->columns[i].text);
        PyMem_RawFree(self->columns[i].valid);
    }
    PyMem_Free(self->nodes);
    PyMem_Free(self->columns);
    PyMem_Free(self->tops);
    Py_XDECREF(self->described);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* ---- a number of each datum ---- */

/* Fill `numbers` with what the last column takes from each datum at `starts`..`ends`. A datum that is
 * bad gets the number before it. The bytes after the number are not read. */
static enum outcome fill_numbers(
    ColumnProgram *self, const Py_buffer *data, const int64_t *starts, const int64_t *ends,
    Py_ssize_t count, int64_t *numbers)
{
    const unsigned char *bytes = data->buf;
    struct column *column = &self->columns[self->width - 1];
    int64_t number = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (i + AHEAD < count)
            prefetch(data, starts[i + AHEAD], ends[i + AHEAD]);
        if (starts[i] >= 0 && starts[i] <= ends[i] && ends[i] <= data->len) {
            struct input in = {
                bytes + starts[i], bytes + ends[i], 0, 0, self->seed, NULL, bytes + data->len
            };
            const enum outcome outcome = fill_value(&in, &self->nodes[0]);
            if (outcome < READ)
                return outcome;
            if (outcome == READ && column->size)
                memcpy(&number, column->cells, sizeof number);
            empty_columns(self);
        }
        numbers[i] = number;
    }
    return READ;
}

static PyObject *peek_spans(
    ColumnProgram *self, const Py_buffer *data, const Py_buffer *starts, const Py_buffer *ends)
{
    PyObject *made = PyByteArray_FromStringAndSize(NULL, starts->len);
    if (made == NULL)
        return NULL;
    int64_t *numbers = (int64_t *)(void *)PyByteArray_AS_STRING(made);
    enum outcome outcome;
    self->busy = 1;
    Py_BEGIN_ALLOW_THREADS
    outcome = fill_numbers(self, data, starts->buf, ends->buf, starts->len / 8, numbers);
    Py_END_ALLOW_THREADS
    empty_columns(self);
    self->busy = 0;
    if (outcome == READ)
        return made;
    Py_DECREF(made);
    return PyErr_NoMemory();
}

static PyObject *ColumnProgram_peek(ColumnProgram *self, PyObject *given)
{
    Py_buffer data, starts, ends;
    PyObject *made = NULL;
    if (!PyArg_ParseTuple(given, "y*y*y*", &data, &starts, &ends))
        return NULL;
    if (self->busy)
        PyErr_SetString(PyExc_RuntimeError, "another thread decodes with this program");
    else if (starts.len != ends.len || starts.len % 8)
        PyErr_SetString(PyExc_ValueError, "starts and ends are numbers of 64 bits, as many of each");
    else if (self->width == 0 || self->columns[self->width - 1].layout != WORD64)
        PyErr_SetString(PyExc_ValueError, "the last column is not one of numbers of 64 bits");
    else
        made = peek_spans(self, &data, &starts, &ends);
    PyBuffer_Release(&data);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&ends);
    return made;
}

static PyMethodDef ColumnProgram_methods[] = {
    {"decode", (PyCFunction)ColumnProgram_decode, METH_VARARGS,
     "The columns of the datums at (data, starts, ends), the numbers of the bad ones, and their FAIL nodes."},
    {"check", (PyCFunction)ColumnProgram_check, METH_VARARGS,
     "The numbers of those values at (data, ids, spans) with a schema id that are not one datum."},
    {"peek", (PyCFunction)ColumnProgram_peek, METH_VARARGS,
     "The number that the last column takes from each of the datums at (data, starts, ends)."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject ColumnProgram_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "headworks._native._decoder.ColumnProgram",
    .tp_doc = "The decoder of one pair of schemas, into columns.",
    .tp_basicsize = sizeof(ColumnProgram),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = ColumnProgram_new,
    .tp_dealloc = (destructor)ColumnProgram_dealloc,
    .tp_methods = ColumnProgram_methods,
};

/* ---- events ---- */

typedef struct {
    PyObject_HEAD
    PyObject *described;         /* owns everything that nodes point to */
    PyObject *decode;            /* the Python form: (bytes, start) to event */
    Py_ssize_t count;
    struct node *nodes;
    unsigned long long declined;
} EventProgram;

/* Return the value of a node; NULL for a datum that is declined, or with MemoryError or an error of a
 * function that was called. */
static PyObject *make_value(struct input *in, const struct node *node);

static PyObject *make_integer(struct input *in, const struct node *node)
{
    int64_t number;
    if (read_long(in, &number) != READ)
        return NULL;
    if (node->size == 32 && (number < INT32_MIN || number > INT32_MAX))
        return NULL;
    if (node->kind == AS_DOUBLE)
        return PyFloat_FromDouble((double)number);
    if (node->kind == AS_FLOAT)
        return PyFloat_FromDouble((double)(float)(double)number);
    return PyLong_FromLongLong(number);
}

static PyObject *make_real(struct input *in, const struct node *node)
{
    uint64_t bits;
    double number;
    float single;
    if (read_little_endian(in, node->kind == DOUBLE ? 8 : 4, &bits) != READ)
        return NULL;
    if (node->kind == DOUBLE) {
        memcpy(&number, &bits, 8);
        return PyFloat_FromDouble(number);
    }
    const uint32_t half = (uint32_t)bits;
    memcpy(&single, &half, 4);
    return PyFloat_FromDouble((double)single);
}

/* Make the datetime of a number of milliseconds or microseconds since 1970 UTC. */
static PyObject *make_instant(struct input *in, const struct node *node)
{
    const int64_t first = -62135596800, end = 253402300800;  /* seconds: the years 1 to 9999 */
    const int64_t unit = node->kind == INSTANT_MILLIS ? 1000 : 1000000;
    int64_t number;
    if (read_long(in, &number) != READ)
        return NULL;
    int64_t part = number % unit;
    part += part < 0 ? unit : 0;
    const int64_t seconds = (number - part) / unit;
    if (number < first * unit || seconds >= end)
        return NULL;
    const int of_day = (int)((seconds - first) % 86400);
    const int64_t days = (seconds - first) / 86400 + 306;     /* since March 1 of the year 0 */
    const int64_t era = days / 146097, of_era = days % 146097;
    const int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    const int64_t of_year = of_era - (365 * year + year / 4 - year / 100);
    const int64_t month = (5 * of_year + 2) / 153;            /* 0: March */
    return PyDateTimeAPI->DateTime_FromDateAndTime(
        (int)(year + 400 * era + (month > 9)), (int)(month + (month < 10 ? 3 : -9)),
        (int)(of_year - (153 * month + 2) / 5 + 1), of_day / 3600, of_day / 60 % 60, of_day % 60,
        (int)(part * (1000000 / unit)), PyDateTime_TimeZone_UTC, PyDateTimeAPI->DateTimeType);
}

static PyObject *make_text(struct input *in, const struct node *node)
{
    const unsigned char *start;
    size_t size;
    if (read_span(in, node->size, &start, &size) != READ)
        return NULL;
    if (node->kind == BYTES)
        return PyBytes_FromStringAndSize((const char *)start, (Py_ssize_t)size);
    return PyUnicode_DecodeUTF8((const char *)start, (Py_ssize_t)size, NULL);
}

static int hex_digit(unsigned char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Make the number of a UUID: of 16 bytes, or of text in the usual form. */
static PyObject *make_uuid_number(struct input *in, const struct node *node)
{
    const unsigned char *at;
    unsigned char raw[UUID_SIZE];
    size_t size;
    if (read_span(in, node->size, &at, &size) != READ
        || size != (node->size < 0 ? UUID_TEXT_SIZE : UUID_SIZE))
        return NULL;
    for (int i = 0; node->size < 0 && i < UUID_SIZE; i++) {
        if ((i == 4 || i == 6 || i == 8 || i == 10) && *at++ != '-')
            return NULL;
        const int high = hex_digit(at[0]), low = hex_digit(at[1]);
        if (high < 0 || low < 0)
            return NULL;
        raw[i] = (unsigned char)(high << 4 | low);
        at += 2;
    }
    const unsigned char *number = node->size < 0 ? raw : at;
#if PY_VERSION_HEX >= 0x030D0000
    return PyLong_FromUnsignedNativeBytes(number, UUID_SIZE, Py_ASNATIVEBYTES_BIG_ENDIAN);
#else
    return _PyLong_FromByteArray(number, UUID_SIZE, 0, 0);
#endif
}

/* Call a function with the value below, or with nothing. */
static PyObject *make_call(struct input *in, const struct node *node)
{
    if (node->count == 0)
        return PyObject_CallNoArgs(node->value);
    PyObject *value = make_value(in, node->below[0]);
    PyObject *made = value == NULL ? NULL : PyObject_CallOneArg(node->value, value);
    Py_XDECREF(value);
    return made;
}

static int add_to(PyObject *items, struct input *in, const struct node *node)
{
    static const struct node text = {.kind = TEXT, .size = -1};
    PyObject *key = node->kind == MAP ? make_text(in, &text) : NULL;
    if (node->kind == MAP && key == NULL)
        return -1;
    PyObject *item = make_value(in, node->below[0]);
    int done = -1;
    if (item != NULL)
        done = key == NULL ? PyList_Append(items, item) : PyDict_SetItem(items, key, item);
    Py_XDECREF(key);
    Py_XDECREF(item);
    return done;
}

static PyObject *make_items(struct input *in, const struct node *node)
{
    PyObject *items = node->kind == MAP ? PyDict_New() : PyList_New(0);
    int64_t count = 1;
    while (items != NULL && count > 0) {
        if (read_block(in, node->size, &count) != READ)
            Py_CLEAR(items);
        for (int64_t i = 0; items != NULL && i < count; i++)
            if (add_to(items, in, node) < 0)
                Py_CLEAR(items);
    }
    return items;
}

/* Make an object as `object.__new__` does, and fill its slots. */
static PyObject *make_record(struct input *in, const struct node *node)
{
    PyTypeObject *cls = (PyTypeObject *)PyTuple_GET_ITEM(node->value, 0);
    if (cls->tp_version_tag != node->version)
        return NULL;
    PyObject *made = cls->tp_alloc(cls, 0);
    for (Py_ssize_t i = 0; made != NULL && i < node->count; i++) {
        if (node->offsets[i] < 0) {
            if (skip_value(in, node->below[i]) != READ)
                Py_CLEAR(made);
            continue;
        }
        PyObject *value = make_value(in, node->below[i]);
        if (value == NULL)
            Py_CLEAR(made);
        else
            *(PyObject **)((char *)made + node->offsets[i]) = value;
    }
    return made;
}

static PyObject *make_nested(struct input *in, const struct node *node)
{
    if (in->depth == MAX_EVENT_DEPTH)
        return NULL;
    in->depth++;
    PyObject *made = node->kind == RECORD ? make_record(in, node) : make_items(in, node);
    in->depth--;
    return made;
}

static PyObject *make_value(struct input *in, const struct node *node)
{
    int64_t branch;
    switch (node->kind) {
    case STEPS:  /* the first node of a table */
        return node->count == 1 ? make_value(in, node->below[0]) : NULL;
    case UNION:
        if (read_long(in, &branch) != READ || branch < 0 || branch >= node->count)
            return NULL;
        return make_value(in, node->below[branch]);
    case OBJECT:
        return Py_NewRef(node->value);
    case CALL:
        return make_call(in, node);
    case INTEGER:
    case AS_DOUBLE:
    case AS_FLOAT:
        return make_integer(in, node);
    case FLOAT:
    case DOUBLE:
        return make_real(in, node);
    case BOOLEAN:
        if (in->at == in->end || *in->at > 1)
            return NULL;
        return Py_NewRef(*in->at++ ? Py_True : Py_False);
    case BYTES:
    case TEXT:
        return make_text(in, node);
    case INSTANT_MILLIS:
    case INSTANT_MICROS:
        return make_instant(in, node);
    case UUID_NUMBER:
        return make_uuid_number(in, node);
    case LIST:
    case MAP:
    case RECORD:
        return make_nested(in, node);
    default:
        return NULL;
    }
}

/* Return the event in bytes from a position on; Python decodes what is declined. */
static PyObject *EventProgram_decode(EventProgram *self, PyObject *const *given, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "decode() takes bytes and a position");
        return NULL;
    }
    PyObject *event = NULL;
    const Py_ssize_t start = PyLong_CheckExact(given[1]) ? PyLong_AsSsize_t(given[1]) : -1;
    if (PyBytes_CheckExact(given[0]) && start >= 0 && start <= PyBytes_GET_SIZE(given[0])) {
        const unsigned char *bytes = (const unsigned char *)PyBytes_AS_STRING(given[0]);
        struct input in = {bytes + start, bytes + PyBytes_GET_SIZE(given[0]), 0, 0, 0, NULL, NULL};
        event = make_value(&in, &self->nodes[0]);
        if (event != NULL && in.at != in.end)
            Py_CLEAR(event);
    }
    PyObject *error = PyErr_Occurred();
    if (event != NULL || (error != NULL && (PyErr_ExceptionMatches(PyExc_MemoryError)
                                            || !PyErr_ExceptionMatches(PyExc_Exception))))
        return event;
    PyErr_Clear();
    self->declined++;
    return PyObject_Vectorcall(self->decode, given, 2, NULL);
}

static int is_slot(PyObject *found, PyTypeObject *cls)
{
    if (!Py_IS_TYPE(found, &PyMemberDescr_Type) || PyDescr_TYPE(found) != cls)
        return 0;
    return ((PyMemberDescrObject *)found)->d_member->type == T_OBJECT_EX;
}

/* Find the slots of a record's attributes: `value` is the class and a name or None for each. */
static int resolve_slots(struct node *node)
{
    if (!PyTuple_Check(node->value) || PyTuple_GET_SIZE(node->value) != node->count + 1
        || !Py_IS_TYPE(PyTuple_GET_ITEM(node->value, 0), &PyType_Type))
        return reject_description("a record is a class, and an attribute for each value below");
    PyTypeObject *cls = (PyTypeObject *)PyTuple_GET_ITEM(node->value, 0);
    node->offsets = PyMem_Calloc((size_t)node->count + 1, sizeof *node->offsets);
    if (node->offsets == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    /* A UUID refuses that its attributes are set: the generated Python sets them in its way too. */
    if ((cls->tp_setattro != PyObject_GenericSetAttr && !node->size) || cls->tp_new != PyBaseObject_Type.tp_new)
        return reject_description("the class sets its attributes or makes its objects in its own way");
    /* The class's own __slots__ first: long names alone would give it no version tag. */
    PyObject *slots = PyObject_GetAttrString((PyObject *)cls, "__slots__");
    if (slots == NULL)
        PyErr_Clear();
    Py_XDECREF(slots);
    for (Py_ssize_t i = 0; i < node->count; i++) {
        PyObject *name = PyTuple_GET_ITEM(node->value, i + 1);
        node->offsets[i] = -1;
        if (name == Py_None)
            continue;
        PyObject *found = PyUnicode_Check(name) ? PyObject_GetAttr((PyObject *)cls, name) : NULL;
        const int is = found != NULL && is_slot(found, cls);
        if (is)
            node->offsets[i] = ((PyMemberDescrObject *)found)->d_member->offset;
        Py_XDECREF(found);
        if (!is)
            return reject_description("an attribute of the class is not a plain slot");
        for (Py_ssize_t before = 0; before < i; before++)
            if (node->offsets[before] == node->offsets[i])
                return reject_description("an attribute is set twice");
    }
    node->version = cls->tp_version_tag;
    return node->version ? 0 : reject_description("the class has no version");
}

static int read_event_node(EventProgram *self, struct node *node, PyObject *described)
{
    Py_ssize_t column;
    if (read_common(self->nodes, self->count, node, described, &column) < 0)
        return -1;
    if (node->kind == RECORD)
        return resolve_slots(node);
    if (node->kind == CALL && (!PyCallable_Check(node->value) || node->count > 1))
        return reject_description("a call is of a function, with at most one value below");
    return 0;
}

static PyObject *EventProgram_new(PyTypeObject *type, PyObject *given, PyObject *named)
{
    static char *names[] = {"nodes", "decode", NULL};
    PyObject *nodes, *decode;
    if (!PyArg_ParseTupleAndKeywords(given, named, "O!O", names, &PyTuple_Type, &nodes, &decode))
        return NULL;
    EventProgram *self = (EventProgram *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->described = Py_NewRef(nodes);
    self->decode = Py_NewRef(decode);
    self->nodes = PyMem_Calloc((size_t)PyTuple_GET_SIZE(nodes) + 1, sizeof *self->nodes);
    if (self->nodes == NULL)
        PyErr_NoMemory();
    else
        self->count = PyTuple_GET_SIZE(nodes);
    int done = self->nodes == NULL ? -1 : 0;
    if (done == 0 && self->count == 0)
        done = reject_description("a program has at least one node");
    for (Py_ssize_t i = 0; done == 0 && i < self->count; i++)
        done = read_event_node(self, &self->nodes[i], PyTuple_GET_ITEM(nodes, i));
    if (done < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int EventProgram_traverse(EventProgram *self, visitproc visit, void *arg)
{
    Py_VISIT(self->described);
    Py_VISIT(self->decode);
    return 0;
}

static void EventProgram_dealloc(EventProgram *self)
{
    PyObject_GC_UnTrack(self);
    for (Py_ssize_t i = 0; i < self->count; i++) {
        PyMem_Free(self->nodes[i].below);
        PyMem_Free(self->nodes[i].offsets);
    }
    PyMem_Free(self->nodes);
    Py_XDECREF(self->described);
    Py_XDECREF(self->decode);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef EventProgram_methods[] = {
    {"decode", (PyCFunction)(void (*)(void))EventProgram_decode, METH_FASTCALL,
     "The event in bytes, from a position on."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef EventProgram_members[] = {
    {"declined", T_ULONGLONG, offsetof(EventProgram, declined), READONLY,
     "The number of events that were handed to the Python form."},
    {NULL, 0, 0, 0, NULL},
};

/* No tp_clear, as a tuple has none: the classes in its cycles are cleared themselves. */
static PyTypeObject EventProgram_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "headworks._native._decoder.EventProgram",
    .tp_doc = "The decoder of one pair of schemas, into events.",
    .tp_basicsize = sizeof(EventProgram),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = EventProgram_new,
    .tp_dealloc = (destructor)EventProgram_dealloc,
    .tp_traverse = (traverseproc)EventProgram_traverse,
    .tp_methods = EventProgram_methods,
    .tp_members = EventProgram_members,
};

/* ---- the records of Kafka's batches ---- */

struct batch {
    long long size, records, first_offset, first_time, append_time;  /* -1: each has its own time */
};

enum { RECORD_ARRAYS = 6 };

struct records {                 /* eight bytes for each number */
    int64_t *offsets, *times, *key_starts, *key_ends, *value_starts, *value_ends;
};

static int64_t sum(int64_t a, int64_t b)
{
    if (b > 0 && a > INT64_MAX - b)
        return INT64_MAX;
    return b < 0 && a < INT64_MIN - b ? INT64_MIN : a + b;
}

/* Find a key or value: where it begins and ends in `data`, -1 for a null. */
static inline enum outcome find_ends(
    struct input *in, const unsigned char *data, int64_t *start, int64_t *end)
{
    int64_t size;
    if (read_long(in, &size) != READ || (size > 0 && (uint64_t)size > left(in)))
        return BAD;
    *start = *end = -1;
    if (size < 0)
        return READ;
    *start = in->at - data;
    *end = *start + size;
    in->at += size;
    return READ;
}

static enum outcome find_span(struct input *in, const unsigned char *data, int64_t *span)
{
    return find_ends(in, data, &span[0], &span[1]);
}

static enum outcome find_record(
    struct input *in, const unsigned char *data, const struct batch *batch, struct records *found)
{
    int64_t size, time, delta;
    if (read_long(in, &size) != READ || size < 1 || (uint64_t)size > left(in))
        return BAD;
    struct input record = {in->at + 1, in->at + size, 0, 0, 0, NULL, NULL};  /* after the attributes */
    in->at += size;
    if (read_long(&record, &time) != READ || read_long(&record, &delta) != READ
        || find_ends(&record, data, found->key_starts++, found->key_ends++) != READ
        || find_ends(&record, data, found->value_starts++, found->value_ends++) != READ)
        return BAD;
    time = batch->append_time < 0 ? sum(batch->first_time, time) : batch->append_time;
    *found->times++ = time < 0 ? 0 : time > MAX_TIMESTAMP_MS ? MAX_TIMESTAMP_MS : time;
    *found->offsets++ = sum(batch->first_offset, delta);
    return READ;
}

static int read_batch(PyObject *described, struct batch *batch)
{
    if (!PyTuple_Check(described))
        return reject_description("a batch is a tuple of five numbers");
    return PyArg_ParseTuple(described, "LLLLL", &batch->size, &batch->records, &batch->first_offset,
                            &batch->first_time, &batch->append_time) ? 0 : -1;
}

/* Return the number of records of all batches; -1 if they cannot be in so many bytes. */
static Py_ssize_t records_in(PyObject *batches, Py_ssize_t size)
{
    struct batch batch;
    Py_ssize_t records = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(batches); i++) {
        if (read_batch(PyTuple_GET_ITEM(batches, i), &batch) < 0)
            return -1;
        if (batch.size < 0 || batch.size > size || batch.records < 0
            || batch.records > batch.size / MIN_RECORD_BYTES)
            return reject_description("the batches are not in the data");
        records += (Py_ssize_t)batch.records;
        size -= (Py_ssize_t)batch.size;
    }
    return records;
}

/* Fill the arrays; return the number of the first broken batch, else -1. */
static Py_ssize_t find_all(const Py_buffer *data, PyObject *batches, struct records *found)
{
    struct batch batch;
    struct input in = {data->buf, data->buf, 0, 0, 0, NULL, NULL};
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(batches); i++) {
        read_batch(PyTuple_GET_ITEM(batches, i), &batch);  /* records_in has read it before */
        in.at = in.end;
        in.end += batch.size;
        for (long long record = 0; record < batch.records; record++) {
            const unsigned char *const begin = in.at;
            if (find_record(&in, data->buf, &batch, found) != READ)
                return i;
            /* The next records are probably about as large. */
            const int64_t size = in.at - begin, from = in.at - (const unsigned char *)data->buf;
            prefetch(data, from + AHEAD * size, from + (AHEAD + 1) * size);
        }
    }
    return -1;
}

static PyObject *find_records(PyObject *Py_UNUSED(module), PyObject *given)
{
    Py_buffer data;
    PyObject *batches, *arrays[RECORD_ARRAYS] = {NULL}, *made = NULL;
    if (!PyArg_ParseTuple(given, "y*O!", &data, &PyTuple_Type, &batches))
        return NULL;
    const Py_ssize_t count = records_in(batches, data.len);
    for (int i = 0; count >= 0 && i < RECORD_ARRAYS; i++) {
        arrays[i] = PyByteArray_FromStringAndSize(NULL, 8 * count);
        if (arrays[i] == NULL)
            break;
    }
    if (count >= 0 && arrays[RECORD_ARRAYS - 1] != NULL) {
        int64_t *to[RECORD_ARRAYS];
        for (int i = 0; i < RECORD_ARRAYS; i++)
            to[i] = (int64_t *)(void *)PyByteArray_AS_STRING(arrays[i]);
        struct records found = {to[0], to[1], to[2], to[3], to[4], to[5]};
        const Py_ssize_t wrong = find_all(&data, batches, &found);
        made = Py_BuildValue(
            "nOOOOOO", wrong, arrays[0], arrays[1], arrays[2], arrays[3], arrays[4], arrays[5]);
    }
    for (int i = 0; i < RECORD_ARRAYS; i++)
        Py_XDECREF(arrays[i]);
    PyBuffer_Release(&data);
    return made;
}

/* ---- the frames of a batch ---- */

/* Find a framed key or value: its schema id, -1 for a null, -2 if it has none; and its datum. */
static enum outcome find_frame(struct input *in, const unsigned char *data, int64_t *id, int64_t *span)
{
    if (find_span(in, data, span) != READ)
        return BAD;
    *id = span[0] < 0 ? NO_VALUE : NO_FRAME;
    if (span[0] < 0 || span[1] - span[0] < FRAME_SIZE || data[span[0]] != 0)
        return READ;
    *id = 0;
    for (int i = 1; i < FRAME_SIZE; i++)
        *id = *id << 8 | data[span[0] + i];
    span[0] += FRAME_SIZE;
    return READ;
}

static enum outcome skip_headers(struct input *in, const unsigned char *data)
{
    int64_t count, span[2];
    if (read_long(in, &count) != READ)
        return BAD;
    for (; count > 0; count--) {
        if (find_span(in, data, span) != READ)
            return BAD;
        if (span[0] >= 0 && !is_utf8(data + span[0], (size_t)(span[1] - span[0])))
            return BAD;
        if (find_span(in, data, span) != READ)
            return BAD;
    }
    return READ;
}

/* Find the key and the value of every record; records are numbered from 0. */
static enum outcome find_frames_of(const Py_buffer *data, Py_ssize_t count, int64_t **to)
{
    struct input in = {data->buf, (const unsigned char *)data->buf + data->len, 0, 0, 0, NULL, NULL};
    int64_t size, time, number;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (read_long(&in, &size) != READ || size < 1 || (uint64_t)size > left(&in))
            return BAD;
        struct input record = {in.at + 1, in.at + size, 0, 0, 0, NULL, NULL};  /* after the attributes */
        in.at += size;
        if (read_long(&record, &time) != READ || read_long(&record, &number) != READ || number != i
            || find_frame(&record, data->buf, to[0] + i, to[1] + 2 * i) != READ
            || find_frame(&record, data->buf, to[2] + i, to[3] + 2 * i) != READ
            || skip_headers(&record, data->buf) != READ)
            return BAD;
    }
    return READ;
}

static PyObject *find_frames(PyObject *Py_UNUSED(module), PyObject *given)
{
    Py_buffer data;
    Py_ssize_t count;
    PyObject *arrays[4] = {NULL}, *made = NULL;
    int64_t *to[4];
    int i = 0;
    if (!PyArg_ParseTuple(given, "y*n", &data, &count))
        return NULL;
    if (count < 0 || count > data.len / MIN_RECORD_BYTES)
        count = -1;
    for (; count >= 0 && i < 4; i++) {
        arrays[i] = PyByteArray_FromStringAndSize(NULL, count * (i % 2 ? 16 : 8));
        if (arrays[i] == NULL)
            break;
        to[i] = (int64_t *)(void *)PyByteArray_AS_STRING(arrays[i]);
    }
    if (count < 0 || (i == 4 && find_frames_of(&data, count, to) != READ))
        made = Py_NewRef(Py_None);
    else if (i == 4)
        made = PyTuple_Pack(4, arrays[0], arrays[1], arrays[2], arrays[3]);
    for (i = 0; i < 4; i++)
        Py_XDECREF(arrays[i]);
    PyBuffer_Release(&data);
    return made;
}

/* Return the schema id before each value at (data, starts, ends); -1 if there is none. */
static PyObject *find_ids(PyObject *Py_UNUSED(module), PyObject *given)
{
    Py_buffer data, starts, ends;
    PyObject *made = NULL;
    if (!PyArg_ParseTuple(given, "y*y*y*", &data, &starts, &ends))
        return NULL;
    const Py_ssize_t count = starts.len / 8;
    const unsigned char *bytes = data.buf;
    const int64_t *from = starts.buf, *to = ends.buf;
    if (starts.len % 8 || ends.len != starts.len)
        PyErr_SetString(PyExc_ValueError, "starts and ends are numbers of 64 bits, as many of each");
    else
        made = PyByteArray_FromStringAndSize(NULL, count * 8);
    int64_t *ids = made == NULL ? NULL : (int64_t *)(void *)PyByteArray_AS_STRING(made);
    for (Py_ssize_t i = 0; made != NULL && i < count; i++) {
        const int64_t start = from[i], end = to[i];
        ids[i] = -1;
        if (start < 0 || end > data.len || end - start < FRAME_SIZE || bytes[start] != 0)
            continue;
        const unsigned char *id = bytes + start + 1;
        ids[i] = (int64_t)id[0] << 24 | id[1] << 16 | id[2] << 8 | id[3];
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&ends);
    return made;
}

/* ---- the module ---- */

static PyMethodDef functions[] = {
    {"find_records", find_records, METH_VARARGS,
     "Where the records of (data, batches) are: the first broken batch or -1, and six arrays."},
    {"find_frames", find_frames, METH_VARARGS,
     "Schema ids and data of the keys and values of (data, records): four arrays, or None."},
    {"find_ids", find_ids, METH_VARARGS,
     "The schema id before each value of (data, starts, ends): one array, -1 for none."},
    {NULL, NULL, 0, NULL},
};

static int fill_module(PyObject *module)
{
    PyDateTime_IMPORT;
    if (PyDateTimeAPI == NULL || PyType_Ready(&Cells_Type) < 0 || PyModule_AddType(module, &ColumnProgram_Type) < 0
        || PyModule_AddType(module, &EventProgram_Type) < 0)
        return -1;
    return PyModule_AddStringConstant(module, "SOURCE", HEADWORKS_SOURCE);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "headworks._native._decoder",
    .m_doc = "The compiled form of generated decoders.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__decoder(void)
{
    return PyModuleDef_Init(&definition);
}
