// The page's questions are answered in the browser itself, by the program compiled to WebAssembly (worker.js).
// explorer.json says which models and images lie beside the page. Nothing leaves the browser.

const megabytes = (bytes) => (bytes / 1e6).toFixed(1);

// The bytes of a file beside the page; `tell` hears how many have come.
async function fetched(address, tell) {
  let response;
  try {
    response = await fetch(address);
  } catch {
    throw new Error(`${address} cannot be loaded; the page has to come from a web server, not from a file.`);
  }
  if (!response.ok) throw new Error(`${address} is missing beside the page (${response.status}).`);
  const parts = [], reader = response.body.getReader();
  for (let one = await reader.read(); !one.done; one = await reader.read()) {
    parts.push(one.value);
    tell?.(one.value.length);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

// The pixels of an image file as the browser reads it, without any conversion of colours.
async function pixelsOf(blob, name) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(blob, { colorSpaceConversion: 'none', premultiplyAlpha: 'none' });
  } catch {
    throw new Error(`${name} is no image that this browser can read; PNG and JPEG always are.`);
  }
  const canvas = document.createElement('canvas');
  canvas.width = bitmap.width;
  canvas.height = bitmap.height;
  const paint = canvas.getContext('2d', { willReadFrequently: true, colorSpace: 'srgb' });
  paint.drawImage(bitmap, 0, 0);
  bitmap.close();
  return paint.getImageData(0, 0, canvas.width, canvas.height);
}

class WasmBackend {
  takesModels = true;
  hasFigures = false;
  #worker = new Worker(new URL('worker.js', import.meta.url), { type: 'module' });
  #waiting = new Map();  // number of a call → what its answer does
  #calls = 0;
  #images = [];          // files beside the page
  #loading = new Map();  // name of an image → when the worker has it
  #own = new Map();      // name of a dropped image → its address

  constructor() {
    this.#worker.onmessage = ({ data }) => {
      const { resolve, reject } = this.#waiting.get(data.number);
      this.#waiting.delete(data.number);
      if (data.answer.error) reject(new Error(data.answer.error));
      else resolve(data.answer);
    };
    this.#worker.onerror = (event) => {
      const error = new Error(`The program in the browser has failed: ${event.message || 'it cannot be loaded'}.`);
      for (const { reject } of this.#waiting.values()) reject(error);
      this.#waiting.clear();
    };
  }

  #call(name, values, transfer = []) {
    const number = ++this.#calls;
    return new Promise((resolve, reject) => {
      this.#waiting.set(number, { resolve, reject });
      this.#worker.postMessage({ number, name, values }, transfer);
    });
  }

  async setup(tell) {
    const { models, images } = await (await fetch('explorer.json')).json();
    const all = models.reduce((sum, model) => sum + model.bytes, 0);
    let come = 0;
    const files = await Promise.all(models.map((model) => fetched(model.file, (bytes) => {
      come += bytes;
      tell(`Loading models: ${megabytes(come)} of ${megabytes(all)} MB`);
    })));
    for (const [i, file] of files.entries()) {
      await this.#call('addModel', [file, models[i].name], [file.buffer]);
    }
    if (images) {
      this.#images = images.files;
      await this.#call('setImages', [images.name, images.split, images.files.length]);
    }
    if ('serviceWorker' in navigator) navigator.serviceWorker.register('offline.js').catch(() => {});
    return this.ask('/api/setup');
  }

  async ask(path, options) {
    const [address, query = ''] = path.split('?');
    const image = new URLSearchParams(query).get('image');
    if (image) await this.#load(image);
    if (options?.signal?.aborted) throw new DOMException('', 'AbortError');
    return this.#call('ask', [address, query]);
  }

  // An image beside the page is read when it is first asked for.
  #load(name) {
    const listed = /^data:(\d+)$/.exec(name), file = listed && this.#images[Number(listed[1])];
    if (!file || this.#loading.has(name)) return this.#loading.get(name);
    const loaded = fetched(file.file).then((bytes) => this.#give(name, file.name, file.label, new Blob([bytes])));
    this.#loading.set(name, loaded);
    return loaded;
  }

  async #give(key, name, label, blob) {
    const { data, height, width } = await pixelsOf(blob, name);
    return this.#call('addImage', [key, name, label, data, height, width], [data.buffer]);
  }

  async addImage(file) {
    const name = `own:${this.#own.size}`;
    await this.#give(name, 'your image', '', file);
    this.#own.set(name, URL.createObjectURL(file));
    return name;
  }

  // Reads a model file and says the number of the model.
  async addModel(file) {
    const bytes = new Uint8Array(await file.arrayBuffer());
    const name = file.name.replace(/\.safetensors$/, '');
    return (await this.#call('addModel', [bytes, name], [bytes.buffer])).model;
  }

  pictureAddress(name) {
    const listed = /^data:(\d+)$/.exec(name);
    return listed ? this.#images[Number(listed[1])]?.file : this.#own.get(name);
  }
}

export const backend = new WasmBackend();
