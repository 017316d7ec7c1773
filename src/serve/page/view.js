// The image in patches, and one model's map beside it.
import {
  curvesOf, decimals, element, factor, paintFrame, paintLines, paintNumbers, paintValues, rgb, roundTicks, short, signed,
} from './draw.js';
import { MaskView } from './mask.js';
import { PatchCanvas } from './patch_canvas.js';

const chosenColour = '#111', readColour = '#d9480f';
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const titles = {
  bias: 'Bias', 'bias-x': 'x part', 'bias-y': 'y part', gates: 'Gates', positions: 'Positions', attention: 'Attention',
};
const longTitles = {
  bias: 'Bias', 'bias-x': 'Bias, x part', 'bias-y': 'Bias, y part', gates: 'Gates',
  positions: 'Soft distance', attention: 'Attention',
};

// What one unit of the values adds to a logit, or null where no single number says so.
const perUnit = (rows) =>
  (rows.logit_factor && rows.logit_factor[0] === rows.logit_factor[1] ? rows.logit_factor[0] : null);

// What the ends of a scale mean; two long names do not fit below a small map.
function endsOf(rows, narrow) {
  const per = perUnit(rows);
  const brief = narrow && rows.kind === 'balanced';
  const gains = brief ? 'gains' : 'gains attention', loses = brief ? 'loses' : 'loses attention';
  if (rows.kind === 'distance') return ['near', per ? `far: ${per > 0 ? gains : loses}` : 'far'];
  if (rows.kind === 'balanced') return per ? (per > 0 ? [loses, gains] : [gains, loses]) : ['less', 'more'];
  return rows.kind === 'share' ? ['none', 'much attention'] : ['closed', 'open'];
}

export function valueText(rows, value) {
  if (value === null || value === undefined) return 'none';
  return rows.kind === 'share' ? `${short(100 * value)} %` : short(value);
}

export class ImageView {
  constructor(handlers) {
    this.patches = new PatchCanvas('The image in patches; arrow keys choose one', handlers);
    this.note = element('p', { class: 'note' });
    this.opacity = element('input', { id: 'opacity', type: 'range', min: '0', max: '100', step: '5', value: '0' });
    this.opacityText = element('output', { id: 'opacity-text' });
    this.node = element('article', { class: 'panel', id: 'image' },
      element('h2', {}, 'Image'), this.note, this.patches.box,
      element('div', { class: 'field overlay' },
        element('label', { for: 'opacity' }, 'Map over the image ', this.opacityText), this.opacity));
  }

  setPicture(picture, info) {
    this.picture = picture;
    this.patches.grid = info;
  }

  draw(state, scales, { chosen, read, preview, rows }) {
    if (!this.picture) return;
    const paint = this.patches.clear(this.picture), canvas = this.patches.canvas;
    paint.imageSmoothingEnabled = this.picture.naturalWidth > 128;
    paint.drawImage(this.picture, 0, 0, canvas.width, canvas.height);
    if (rows && state.opacity > 0) {
      paintValues(canvas, rows, scales[state.safe ? 'cividis' : 'green'][rows.kind], state.opacity / 100, css('--card'));
    }
    if (state.lines) paintLines(canvas, this.patches.grid);
    if (read) paintFrame(canvas, this.patches.grid, read, readColour, true);
    if (chosen) paintFrame(canvas, this.patches.grid, chosen, chosenColour);
    this.note.textContent = !chosen ? 'Choose a patch'
      : `Patch ${chosen.y},${chosen.x}: ${preview ? 'click to keep it' : 'choose another'}`;
    this.opacityText.value = `${state.opacity} %`;
  }
}

export class MapView {
  constructor(model, label, handlers) {
    this.model = model;
    this.info = null;
    this.rows = null;
    this.details = {};  // by quantity: rows from the same patch, for the readout
    this.patches = new PatchCanvas(`Map of ${model.encoding}; arrow keys read values`, {
      point: (place) => handlers.read(this, place, false), press: (place) => handlers.read(this, place, true),
      leave: () => handlers.leaveMap(this), key: (event) => handlers.readKey(this, event),
      focus: () => handlers.focusMap(this),
    });
    this.patches.canvas.dataset.model = model.index;
    this.title = element('h2', { title: `${model.name}, ${model.encoding}` }, label);
    this.note = element('p', { class: 'note' });
    this.bar = element('canvas', { width: '256', height: '1', 'aria-hidden': 'true' });
    this.ticks = element('div', { class: 'ticks', 'aria-hidden': 'true' });
    this.low = element('span');
    this.high = element('span');
    this.legend = element('div', { class: 'legend', hidden: '' }, this.bar, this.ticks,
      element('div', { class: 'ends' }, this.low, this.high));
    this.node = element('article', { class: 'panel view' }, this.title, this.note, this.patches.box, this.legend);

    this.wordsTitle = element('h3', {}, `${model.encoding} `, element('small', {}, model.name));
    this.readout = element('dl', { class: 'readout' });
    this.caption = element('p', { class: 'caption' });
    this.warning = element('p', { class: 'warning', hidden: '' });
    this.curves = element('div', { class: 'curves', hidden: '' });
    this.seen = element('div', { class: 'seen' });  // classes, or a mask that does not stand beside the map
    this.mask = model.task !== 'segmentation' ? null : new MaskView(model, {
      pixel: (place, options) => handlers.pixel(this, place, options), say: handlers.say,
    });
    this.words = element('article', { class: 'words', hidden: '' }, this.wordsTitle, this.warning, this.caption, this.readout,
      this.curves, element('p', { class: 'label' }, 'The model sees'), this.seen);
  }

  setPicture(picture, info) {
    this.picture = picture;
    this.info = info;
    this.patches.grid = info;
    this.setRows(null);
    delete this.node.dataset.patch;
    delete this.node.dataset.what;
    this.warning.textContent = info.warning || '';
    this.warning.hidden = !info.warning;
    this.words.hidden = false;
    if (this.mask) this.mask.setPicture(picture, info);
    else this.showPredictions();
  }

  setRows(rows) {
    this.rows = rows;
    this.details = {};
    this.node.classList.remove('waiting');
  }

  showPredictions() {
    const list = element('ul', { class: 'predictions', 'aria-label': 'What the model sees' });
    list.append(...this.info.predictions.slice(0, 3).map((one) => {
      const bar = element('i');
      bar.style.width = `${100 * one.probability}%`;
      const name = element('span', one.class === this.info.label ? { class: 'true', title: 'the true class' } : {},
        one.class);
      return element('li', {}, name, element('span', { class: 'bar' }, bar),
        element('span', { class: 'number' }, `${(100 * one.probability).toFixed(1)} %`));
    }));
    this.seen.replaceChildren(list);
  }

  // Nothing to show: a sentence in place of the map.
  refuse(sentence) {
    this.setRows(null);
    this.caption.textContent = sentence;
    this.caption.classList.add('refusal');
    this.legend.hidden = true;
    this.curves.hidden = true;
    this.readout.replaceChildren();
  }

  draw(state, scales, { chosen, read }) {
    if (!this.picture) return;
    const paint = this.patches.clear(this.picture), canvas = this.patches.canvas;
    paint.fillStyle = css('--wash');
    paint.fillRect(0, 0, canvas.width, canvas.height);
    const rows = this.rows;
    this.note.textContent = chosen ? `${longTitles[state.what]} from patch ${chosen.y},${chosen.x}` : '';
    if (rows) {
      const table = scales[state.safe ? 'cividis' : 'green'][rows.kind];
      paintValues(canvas, rows, table, 1, css('--card'));
      if (state.lines) paintLines(canvas, rows);
      if (state.numbers) {  // as wide on the screen as four digits need
        paintNumbers(canvas, rows, table, 26 * canvas.width / (canvas.clientWidth || canvas.width));
      }
      this.legend.hidden = false;  // before its width is asked for
      this.drawScale(table);
      this.caption.textContent = rows.caption.join(' ');
      this.caption.classList.remove('refusal');
      const curves = curvesOf(rows, chosen);
      this.curves.hidden = !curves;
      this.curves.innerHTML = curves;  // numbers and our own words only
    }
    if (chosen) paintFrame(canvas, this.patches.grid, chosen, chosenColour);
    if (read && rows) paintFrame(canvas, this.patches.grid, read, readColour, true);
    this.mask?.draw(chosen);
    this.showReadout(state, chosen, read);
  }

  drawScale(table) {
    const paint = this.bar.getContext('2d'), rows = this.rows;
    for (let i = 0; i < 256; i++) {
      paint.fillStyle = rgb(table[Math.round(i / 255 * (table.length - 1))]);
      paint.fillRect(i, 0, 1, 1);
    }
    const percent = rows.kind === 'share', unit = percent ? 100 : 1, per = perUnit(rows);
    const narrow = this.legend.clientWidth < 240;
    this.ticks.replaceChildren(...roundTicks(rows.low * unit, rows.high * unit, narrow ? 3 : 6).map((tick) => {
      const node = element('span', {}, tick.text + (percent ? ' %' : ''));
      if (per !== null) node.append(element('small', {}, factor(per * tick.value)));
      node.style.left = `${100 * (tick.value / unit - rows.low) / (rows.high - rows.low)}%`;
      return node;
    }));
    this.ticks.classList.toggle('plain', per === null);
    const [low, high] = endsOf(rows, narrow);
    this.low.textContent = low;
    this.high.textContent = high;
  }

  at(rows, patch) {
    return rows ? rows.values[patch.y * this.info.cols + patch.x] : null;
  }

  // The patch that a value draws to most, and the one it draws to least.
  extremes() {
    let least = null, most = null;
    this.rows.values.forEach((value, number) => {
      if (value === null) return;
      if (least === null || value < this.rows.values[least]) least = number;
      if (most === null || value > this.rows.values[most]) most = number;
    });
    const place = (number) => ({ y: Math.floor(number / this.info.cols), x: number % this.info.cols });
    return least === null ? null : { least: place(least), most: place(most) };
  }

  effectText(rows, value) {
    const per = perUnit(rows);
    return per === null || value === null ? '' : `${signed(per * value)} logits (${factor(per * value)})`;
  }

  showReadout(state, chosen, read) {
    if (!this.rows || !chosen) {
      this.patches.tell(null);
      return;
    }
    const item = (name, value) => element('div', {}, element('dt', {}, name), element('dd', {}, value));
    if (!read) {
      this.patches.tell(null);
      const found = this.extremes();
      const worded = (patch) => {
        const value = this.at(this.rows, patch), effect = this.effectText(this.rows, value);
        return `${valueText(this.rows, value)} at ${patch.y},${patch.x}${effect ? `, ${effect}` : ''}`;
      };
      this.readout.replaceChildren(...(found
        ? [item('Largest', worded(found.most)), item('Smallest', worded(found.least)),
          item('Any other', `${matchMedia('(hover: none)').matches ? 'tap' : 'point at'} the map`)] : []));
      return;
    }
    const value = this.at(this.rows, read), effect = this.effectText(this.rows, value);
    this.patches.tell(read, `${read.y},${read.x}: ${valueText(this.rows, value)}` +
      (effect ? ` → ${factor(perUnit(this.rows) * value)}` : ''));
    const items = [item('Patch', `${read.y},${read.x} (${offsetText(chosen, read)})`)];
    items.push(item(longTitles[state.what], valueText(this.rows, value)));
    if (effect) items.push(item('Adds', effect));
    const { bias, attention, positions } = this.details;
    if (bias) {
      const other = this.at(bias, read), adds = this.effectText(bias, other);
      items.push(item('Bias', valueText(bias, other) + (adds ? `, ${adds}` : '')));
    }
    if (attention) items.push(item('Attention', valueText(attention, this.at(attention, read))));
    const soft = state.what === 'positions' ? this.rows : positions;
    if (soft) {
      items.push(item('Soft position', soft.raster
        ? decimals(soft.raster[read.y * this.info.cols + read.x])
        : `x ${decimals(soft.along_x[read.x])}, y ${decimals(soft.along_y[read.y])}`));
    }
    this.readout.replaceChildren(...items);
  }
}

export function offsetText(from, to) {
  const y = to.y - from.y, x = to.x - from.x;
  const parts = [];
  if (y) parts.push(`${Math.abs(y)} ${y < 0 ? 'up' : 'down'}`);
  if (x) parts.push(`${Math.abs(x)} ${x < 0 ? 'left' : 'right'}`);
  return parts.join(', ') || 'itself';
}
