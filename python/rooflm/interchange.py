"""Tables for other libraries, without a copy of theirs: the DataFrame interchange protocol, version 0
(https://data-apis.org/dataframe-protocol/latest/API.html). pandas.api.interchange.from_dataframe, polars.from_dataframe and others
read it. Whole numbers are int64, other numbers float64, texts UTF-8; a column with None has a mask of bytes, 0 where it is None."""

import array
import enum


class Kind(enum.IntEnum):
    """DtypeKind of the protocol, as far as tables have them."""
    INT = 0
    FLOAT = 2
    BOOL = 20
    STRING = 21


NON_NULLABLE, USE_BYTEMASK = 0, 4
INT64, FLOAT64, BYTE, UTF8 = (Kind.INT, 64, "l", "="), (Kind.FLOAT, 64, "g", "="), (Kind.BOOL, 8, "b", "="), (Kind.STRING, 8, "u", "=")


class Buffer:
    """Memory of a column, kept as long as the buffer."""

    def __init__(self, values):
        self._values = values
        self.ptr, count = values.buffer_info()
        self.bufsize = count * values.itemsize

    def __dlpack__(self):
        raise NotImplementedError("tables of rooflm have no DLPack")

    def __dlpack_device__(self):
        return 1, None  # memory of the processor


def _dtype_of(values):
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return BYTE
    if kinds == {int} and all(value is None or -2**63 <= value < 2**63 for value in values):
        return INT64
    return FLOAT64 if kinds <= {int, float, bool} else UTF8


class Column:
    """A list of values as buffers."""

    offset = 0
    metadata = {}

    def __init__(self, values):
        self._values = values
        self.dtype = _dtype_of(values)
        self.null_count = sum(value is None for value in values)

    def size(self):
        return len(self._values)

    @property
    def describe_null(self):
        return (USE_BYTEMASK, 0) if self.null_count else (NON_NULLABLE, None)

    @property
    def describe_categorical(self):
        raise TypeError("the column is not categorical")

    def num_chunks(self):
        return 1

    def get_chunks(self, n_chunks=None):  # pylint: disable=unused-argument
        yield self

    def get_buffers(self):
        """Data, mask and offsets of texts, each with its dtype, or None."""
        mask = Buffer(array.array("B", [value is not None for value in self._values])) if self.null_count else None
        validity = None if mask is None else (mask, BYTE)
        if self.dtype == UTF8:
            texts = [b"" if value is None else str(value).encode() for value in self._values]
            ends = array.array("q", [0])
            for text in texts:
                ends.append(ends[-1] + len(text))
            data = Buffer(array.array("B", b"".join(texts)))
            return {"data": (data, UTF8), "validity": validity, "offsets": (Buffer(ends), INT64)}
        code = {INT64: "q", FLOAT64: "d", BYTE: "B"}[self.dtype]
        data = Buffer(array.array(code, [0 if value is None else value for value in self._values]))
        return {"data": (data, self.dtype), "validity": validity, "offsets": None}


class Frame:
    """Columns by name."""

    version = 0
    metadata = {}

    def __init__(self, columns):
        self._columns = columns

    def __dataframe__(self, nan_as_null=False, allow_copy=True):  # pylint: disable=unused-argument
        return self

    def num_columns(self):
        return len(self._columns)

    def num_rows(self):
        return len(next(iter(self._columns.values()), []))

    def num_chunks(self):
        return 1

    def column_names(self):
        return list(self._columns)

    def get_column(self, i):
        return Column(list(self._columns.values())[i])

    def get_column_by_name(self, name):
        return Column(self._columns[name])

    def get_columns(self):
        return [Column(values) for values in self._columns.values()]

    def select_columns(self, indices):
        names = self.column_names()
        return self.select_columns_by_name([names[i] for i in indices])

    def select_columns_by_name(self, names):
        return Frame({name: self._columns[name] for name in names})

    def get_chunks(self, n_chunks=None):  # pylint: disable=unused-argument
        yield self
