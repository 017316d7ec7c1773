// The program compiled to WebAssembly, in a thread of its own so that the page never waits for it.
import createProgram from './sape2.js';

const program = createProgram();

// A copy of bytes in the program's memory for the time of a call.
function withBytes(memory, bytes, call) {
  const place = memory._malloc(bytes.length);
  if (!place) return '{"error": "there is not enough memory in this browser for that"}';
  memory.HEAPU8.set(bytes, place);
  try {
    return call(place);
  } finally {
    memory._free(place);
  }
}

const calls = {
  addModel: (p, file, name) => withBytes(p, file, (place) =>
    p.ccall('sape2_add_model', 'string', ['number', 'number', 'string'], [place, file.length, name])),
  addImage: (p, key, name, label, pixels, height, width) => withBytes(p, pixels, (place) =>
    p.ccall('sape2_add_image', 'string', ['string', 'string', 'string', 'number', 'number', 'number'],
      [key, name, label, place, height, width])),
  setImages: (p, ...values) => p.ccall('sape2_set_images', 'string', ['string', 'string', 'number'], values),
  ask: (p, ...values) => p.ccall('sape2_ask', 'string', ['string', 'string'], values),
};

onmessage = async ({ data: { number, name, values } }) => {
  let answer;
  try {
    answer = JSON.parse(calls[name](await program, ...values));
  } catch (error) {
    answer = { error: `The program in the browser has failed: ${error.message || error}.` };
  }
  postMessage({ number, answer });
};
