// What a model for segmentation sees: its mask over the image, and which share of the pixels each class has.
import { element, paintFrame, rgb } from './draw.js';
import { PatchCanvas } from './patch_canvas.js';

const covering = 0.44;  // as in the overlays of `sape2 predict`
const most = 8;         // classes that are named
const percent = (share) => (share > 0 && share < 0.001 ? '<0.1 %' : `${(100 * share).toFixed(1)} %`);

// The classes of pixels, row by row.
function unpacked({ runs, height, width }) {
  const pixels = new Uint8Array(height * width);
  for (let i = 0, at = 0; i < runs.length; at += runs[i + 1], i += 2) pixels.fill(runs[i], at, at + runs[i + 1]);
  return pixels;
}

// The colours of classes as a picture; class 0 stays uncovered.
function coloured({ height, width, classes }, pixels) {
  const picture = element('canvas', { width, height }), paint = picture.getContext('2d');
  const image = paint.createImageData(width, height);
  for (let at = 0; at < pixels.length; at++) {
    if (!pixels[at]) continue;
    [image.data[4 * at], image.data[4 * at + 1], image.data[4 * at + 2]] = classes[pixels[at]].colour;
    image.data[4 * at + 3] = 255 * covering;
  }
  paint.putImageData(image, 0, 0);
  return picture;
}

// A line between pixels of two classes, in the colour of the later one.
function paintBoundaries(canvas, { height, width, classes }, pixels) {
  const paint = canvas.getContext('2d'), stepX = canvas.width / width, stepY = canvas.height / height;
  const lines = new Map();  // class → its lines
  const add = (one, other, ...ends) => {
    if (one === other) return;
    const number = Math.max(one, other);
    if (!lines.has(number)) lines.set(number, new Path2D());
    lines.get(number).moveTo(ends[0] * stepX, ends[1] * stepY);
    lines.get(number).lineTo(ends[2] * stepX, ends[3] * stepY);
  };
  for (let y = 0, at = 0; y < height; y++) {
    for (let x = 0; x < width; x++, at++) {
      if (x + 1 < width) add(pixels[at], pixels[at + 1], x + 1, y, x + 1, y + 1);
      if (y + 1 < height) add(pixels[at], pixels[at + width], x, y + 1, x + 1, y + 1);
    }
  }
  paint.lineCap = 'square';
  paint.lineWidth = 4;
  for (const [number, path] of lines) {
    paint.strokeStyle = rgb(classes[number].colour);
    paint.stroke(path);
  }
}

export class MaskView {
  // `handlers.pixel(place, options)` answers with the classes of a pixel, `handlers.say(words)` is for those who hear
  // the page.
  constructor(model, handlers) {
    this.handlers = handlers;
    this.place = null;  // the pixel that is read
    this.patches = new PatchCanvas('Predicted mask over the image; arrow keys read classes', {
      point: (place) => this.read(place), press: (place) => this.read(place), leave: () => {},
      key: (event) => this.key(event),
      focus: () => { if (!this.place && this.patches.canvas.matches(':focus-visible')) this.read(this.middle()); },
    });
    this.patches.canvas.dataset.mask = model.index;
    this.list = element('ul', { class: 'classes', 'aria-label': 'Share of the pixels of each class' });
    this.reading = element('p', { class: 'reading' });
    this.node = element('div', { class: 'mask' }, this.patches.box, element('div', {}, this.list, this.reading));
  }

  // To stand beside the map.
  panel() {
    return element('article', { class: 'panel' }, element('h2', {}, 'Predicted mask'),
      element('p', { class: 'note' }, 'Classes of the pixels'), this.node);
  }

  setPicture(picture, info) {
    this.picture = picture;
    this.info = info;
    this.mask = info.mask;
    this.pixels = unpacked(this.mask);
    this.patches.grid = { rows: this.mask.height, cols: this.mask.width };
    this.covered = null;  // the image with the mask, once it is drawn
    this.chosen = null;
    this.stop();
    this.showShares();
  }

  showShares() {
    const all = this.mask.classes.map((one, number) => ({ ...one, number })).filter((one) => one.share > 0)
      .sort((a, b) => b.share - a.share);
    this.list.replaceChildren(...all.slice(0, most).map((one) => {
      const swatch = element('i', { class: one.number ? 'swatch' : 'swatch bare' });
      if (one.number) swatch.style.background = rgb(one.colour);
      const name = element('span', one.number ? {} : { title: 'its pixels are left as they are' }, one.class);
      return element('li', { 'data-class': one.number }, swatch, name,
        element('span', { class: 'number' }, percent(one.share)));
    }));
    const rest = all.slice(most);
    if (!rest.length) return;
    this.list.append(element('li', {}, element('i'), element('span', {}, `${rest.length} more`),
      element('span', { class: 'number' }, percent(rest.reduce((sum, one) => sum + one.share, 0)))));
  }

  draw(chosen) {
    this.chosen = chosen;
    const paint = this.patches.clear(this.picture), canvas = this.patches.canvas;
    this.covered ??= this.cover(canvas);
    paint.drawImage(this.covered, 0, 0);
    if (chosen) paintFrame(canvas, this.info, chosen, '#111');
  }

  cover({ width, height }) {
    const covered = element('canvas', { width, height }), paint = covered.getContext('2d');
    paint.imageSmoothingEnabled = this.picture.naturalWidth > 128;
    paint.drawImage(this.picture, 0, 0, width, height);
    paint.imageSmoothingEnabled = false;
    paint.drawImage(coloured(this.mask, this.pixels), 0, 0, width, height);
    paintBoundaries(covered, this.mask, this.pixels);
    return covered;
  }

  // The pixel in the middle of the chosen patch.
  middle() {
    const { rows, cols } = this.info, { y, x } = this.chosen || { y: 0, x: 0 };
    return { y: Math.floor((y + 0.5) * this.mask.height / rows), x: Math.floor((x + 0.5) * this.mask.width / cols) };
  }

  // From patch to patch; Escape ends the reading.
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'Escape' && this.place) {
      event.preventDefault();
      this.stop();
      return;
    }
    const { height, width } = this.mask, { rows, cols } = this.info;
    const from = this.place || this.middle();
    const moves = {
      ArrowLeft: [0, -width / cols], ArrowRight: [0, width / cols], ArrowUp: [-height / rows, 0],
      ArrowDown: [height / rows, 0], Home: [0, -width], End: [0, width],
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    const within = (value, count) => Math.min(count - 1, Math.max(0, Math.round(value)));
    this.read({ y: within(from.y + moves[event.key][0], height), x: within(from.x + moves[event.key][1], width) });
  }

  stop() {
    this.asking?.abort();
    this.place = null;
    this.patches.tell(null);
    this.reading.textContent = '';
    this.mark(null);
  }

  mark(number) {
    for (const item of this.list.children) item.classList.toggle('here', item.dataset.class === String(number));
  }

  // Which class a pixel has is known at once; how probable it is, is asked for.
  async read(place) {
    if (this.place && place.y === this.place.y && place.x === this.place.x) return;
    this.place = place;
    this.asking?.abort();
    const controller = this.asking = new AbortController();
    const number = this.pixels[place.y * this.mask.width + place.x];
    this.mark(number);
    this.patches.tell(place, this.mask.classes[number].class);
    const predictions = await this.handlers.pixel(place, { signal: controller.signal });
    if (!predictions || controller.signal.aborted) return;
    const worded = ({ class: name, probability }) => `${name} ${percent(probability)}`;
    this.patches.tell(place, worded(predictions[0]));
    this.reading.textContent = `Pixel ${place.y},${place.x}: ${predictions.slice(0, 3).map(worded).join(', ')}`;
    this.handlers.say(this.reading.textContent);
  }
}
