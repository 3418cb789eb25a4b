// The data of a page: JSON, and the place of every array in one block of float32, which is gzipped and in base64.

/** A table of numbers of any number of axes. */
export class Table {
  constructor(values, shape) {
    this.values = values;
    this.shape = shape;
  }

  /** The part at these indices of the first axes: a number if all are given, else a table. */
  at(...indices) {
    const rest = this.shape.slice(indices.length), size = rest.reduce((a, b) => a * b, 1);
    const place = indices.reduce((sum, index, axis) => sum * this.shape[axis] + index, 0) * size;
    return rest.length ? new Table(this.values.subarray(place, place + size), rest) : this.values[place];
  }

  get length() {
    return this.shape[0];
  }
}

async function bytes(text) {
  const packed = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

/** The data of a page with tables in place of their places. */
export async function unpack(json, numbers) {
  const values = new Float32Array(await bytes(numbers.trim()));
  return JSON.parse(json, (_, value) => (value && Array.isArray(value.shape) && typeof value.at === "number"
    ? new Table(values.subarray(value.at, value.at + value.shape.reduce((a, b) => a * b, 1)), value.shape) : value));
}
