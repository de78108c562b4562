/* The compiled form of hadoop_loader/_fetch/row_numbers.py: which rows of a load are wanted, in which
 * order they are written, and how many there are of each window.
 *
 * Rules:
 *
 * - The Python form defines the result.
 * - Numbers come in buffers of 64 bits (partitions: of 32), and all buffers of one call are as long.
 * - A number is divided by a unit downwards, so that times before 1970 have a day as well.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef HEADWORKS_SOURCE
#error "HEADWORKS_SOURCE is the SHA-256 of this file: compile it with hatch_build.py"
#endif

enum { MAX_COUNTED = 1 << 16 };  /* units that are sorted by counting them */

struct row {
    int64_t unit, number;
};

static int64_t divide(int64_t number, int64_t unit)
{
    return number / unit - (number % unit < 0);
}

/* ---- order ---- */

/* Fill `units`; return whether they do not decrease. */
static int read_units(const int64_t *numbers, size_t count, int64_t unit, int64_t *units)
{
    int sorted = 1;
    int64_t last = 0, start, rest;
    for (size_t i = 0; i < count; i++) {
        /* Most rows are of the unit of the row before. */
        if (i == 0 || __builtin_mul_overflow(last, unit, &start)
            || __builtin_sub_overflow(numbers[i], start, &rest) || rest < 0 || rest >= unit) {
            const int64_t found = divide(numbers[i], unit);
            sorted &= i == 0 || found >= last;
            last = found;
        }
        units[i] = last;
    }
    return sorted;
}

static int compare(const void *one, const void *other)
{
    const struct row *a = one, *b = other;
    if (a->unit != b->unit)
        return a->unit < b->unit ? -1 : 1;
    return a->number < b->number ? -1 : 1;
}

/* Sort by comparing; return -1 without memory. */
static int sort_any(int64_t *units, size_t count, int64_t *order)
{
    struct row *rows = PyMem_RawMalloc(count * sizeof *rows);
    if (rows == NULL)
        return -1;
    for (size_t i = 0; i < count; i++)
        rows[i] = (struct row){units[i], (int64_t)i};
    qsort(rows, count, sizeof *rows, compare);
    for (size_t i = 0; i < count; i++) {
        units[i] = rows[i].unit;
        order[i] = rows[i].number;
    }
    PyMem_RawFree(rows);
    return 0;
}

/* Sort `units`, and fill `order` with the numbers of their rows. Rows of one unit keep their order. */
static int sort_units(int64_t *units, size_t count, int64_t *order)
{
    int64_t least = units[0], most = units[0];
    for (size_t i = 1; i < count; i++) {
        least = units[i] < least ? units[i] : least;
        most = units[i] > most ? units[i] : most;
    }
    const uint64_t span = (uint64_t)most - (uint64_t)least;
    if (span >= MAX_COUNTED)
        return sort_any(units, count, order);
    size_t *next = PyMem_RawCalloc((size_t)span + 2, sizeof *next);
    if (next == NULL)
        return -1;
    for (size_t i = 0; i < count; i++)
        next[(uint64_t)units[i] - (uint64_t)least + 1]++;
    for (size_t i = 1; i <= span; i++)
        next[i] += next[i - 1];
    for (size_t i = 0; i < count; i++)
        order[next[(uint64_t)units[i] - (uint64_t)least]++] = (int64_t)i;
    size_t at = 0;  /* next[i] is the end of a unit by now */
    for (size_t i = 0; i <= span; i++)
        for (; at < next[i]; at++)
            units[at] = (int64_t)((uint64_t)least + i);
    PyMem_RawFree(next);
    return 0;
}

/* Return (unit, first row, rows) of each unit of sorted rows. */
static PyObject *runs_of(const int64_t *units, size_t count)
{
    PyObject *runs = PyList_New(0);
    for (size_t start = 0, end; runs != NULL && start < count; start = end) {
        for (end = start + 1; end < count && units[end] == units[start]; end++)
            ;
        PyObject *run = Py_BuildValue("Lnn", (long long)units[start], (Py_ssize_t)start, (Py_ssize_t)(end - start));
        if (run == NULL || PyList_Append(runs, run) < 0)
            Py_CLEAR(runs);
        Py_XDECREF(run);
    }
    return runs;
}

static PyObject *ordered(const Py_buffer *numbers, int64_t unit)
{
    const size_t count = (size_t)numbers->len / 8;
    PyObject *order = NULL, *runs = NULL, *made = NULL;
    int64_t *units = PyMem_RawMalloc(8 * count + 1);
    if (units == NULL)
        return PyErr_NoMemory();
    if (read_units(numbers->buf, count, unit, units)) {
        order = Py_NewRef(Py_None);
    } else {
        order = PyByteArray_FromStringAndSize(NULL, numbers->len);
        if (order != NULL && sort_units(units, count, (int64_t *)(void *)PyByteArray_AS_STRING(order)) < 0) {
            Py_CLEAR(order);
            PyErr_NoMemory();
        }
    }
    if (order != NULL)
        runs = runs_of(units, count);
    if (runs != NULL)
        made = PyTuple_Pack(2, order, runs);
    Py_XDECREF(order);
    Py_XDECREF(runs);
    PyMem_RawFree(units);
    return made;
}

static PyObject *order_rows(PyObject *Py_UNUSED(module), PyObject *given)
{
    Py_buffer numbers;
    long long unit;
    PyObject *made = NULL;
    if (!PyArg_ParseTuple(given, "y*L", &numbers, &unit))
        return NULL;
    if (numbers.len % 8 || unit < 1)
        PyErr_SetString(PyExc_ValueError, "the numbers have 64 bits, and the unit is at least 1");
    else
        made = ordered(&numbers, unit);
    PyBuffer_Release(&numbers);
    return made;
}

/* ---- rows of windows ---- */

static PyObject *sums(const int64_t *times, const int64_t *starts, const int64_t *ends, size_t count, int64_t unit)
{
    PyObject *found = PyList_New(0);
    for (size_t i = 0; found != NULL && i < count; ) {
        const int64_t window = divide(times[i], unit);
        const size_t first = i;
        int64_t bytes = 0;
        for (; i < count && divide(times[i], unit) == window; i++)
            bytes += ends[i] - starts[i];
        PyObject *one = Py_BuildValue("LnL", (long long)window, (Py_ssize_t)(i - first), (long long)bytes);
        if (one == NULL || PyList_Append(found, one) < 0)
            Py_CLEAR(found);
        Py_XDECREF(one);
    }
    return found;
}

static PyObject *sum_windows(PyObject *Py_UNUSED(module), PyObject *given)
{
    Py_buffer times, starts, ends;
    long long unit;
    PyObject *made = NULL;
    if (!PyArg_ParseTuple(given, "y*y*y*L", &times, &starts, &ends, &unit))
        return NULL;
    if (times.len % 8 || starts.len != times.len || ends.len != times.len || unit < 1)
        PyErr_SetString(PyExc_ValueError, "the numbers have 64 bits, and the unit is at least 1");
    else
        made = sums(times.buf, starts.buf, ends.buf, (size_t)times.len / 8, unit);
    PyBuffer_Release(&times);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&ends);
    return made;
}

/* ---- rows of ranges ---- */

static int is_inside(const int32_t partition, int64_t offset, const int64_t *bounds, Py_ssize_t count)
{
    return partition >= 0 && partition < count && offset >= bounds[2 * partition]
        && offset < bounds[2 * partition + 1];
}

/* Return the numbers of the rows inside, None if all are. */
static PyObject *inside(
    const int32_t *partitions, const int64_t *offsets, Py_ssize_t rows, const int64_t *bounds, Py_ssize_t count)
{
    Py_ssize_t good = 0;
    for (Py_ssize_t i = 0; i < rows; i++)
        good += is_inside(partitions[i], offsets[i], bounds, count);
    if (good == rows)
        return Py_NewRef(Py_None);
    PyObject *made = PyByteArray_FromStringAndSize(NULL, 8 * good);
    int64_t *to = made == NULL ? NULL : (int64_t *)(void *)PyByteArray_AS_STRING(made);
    for (Py_ssize_t i = 0; to != NULL && i < rows; i++)
        if (is_inside(partitions[i], offsets[i], bounds, count))
            *to++ = i;
    return made;
}

static PyObject *choose_inside(PyObject *Py_UNUSED(module), PyObject *given)
{
    Py_buffer partitions, offsets, bounds;
    PyObject *made = NULL;
    if (!PyArg_ParseTuple(given, "y*y*y*", &partitions, &offsets, &bounds))
        return NULL;
    if (offsets.len % 8 || 2 * partitions.len != offsets.len || bounds.len % 16)
        PyErr_SetString(PyExc_ValueError, "partitions have 32 bits, other numbers 64, and bounds are pairs");
    else
        made = inside(partitions.buf, offsets.buf, offsets.len / 8, bounds.buf, bounds.len / 16);
    PyBuffer_Release(&partitions);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&bounds);
    return made;
}

/* ---- the module ---- */

static PyMethodDef functions[] = {
    {"order_rows", order_rows, METH_VARARGS,
     "The order of rows by unit of (numbers, unit), None if they are in it, and the rows of each unit."},
    {"sum_windows", sum_windows, METH_VARARGS,
     "Runs of (times, starts, ends, unit) in one window: its number, rows, and bytes."},
    {"choose_inside", choose_inside, METH_VARARGS,
     "The numbers of the rows of (partitions, offsets) inside the bounds of partitions, None for all."},
    {NULL, NULL, 0, NULL},
};

static int fill_module(PyObject *module)
{
    return PyModule_AddStringConstant(module, "SOURCE", HEADWORKS_SOURCE);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "headworks._native._rows",
    .m_doc = "The compiled form of what orders and counts the rows of a load.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__rows(void)
{
    return PyModuleDef_Init(&definition);
}
