// One model's view: the image with the map over it, its scale, curves and predictions.

const ends = {
  distance: ['near', 'far'], balanced: ['less', 'more'], share: ['none', 'much'], gate: ['closed', 'open'],
};
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const short = (value) => (value === null ? '–' : Number(value.toPrecision(3)).toString().replace('-', '−'));

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export class View {
  constructor(model, onPatch, onKey) {
    this.model = model;
    this.picture = null;
    this.info = null;
    this.rows = null;
    this.canvas = element('canvas', {
      tabindex: '0', role: 'img', 'aria-label': 'Image in patches; arrow keys move', 'data-model': model.index,
    });
    this.title = element('h2');
    this.encoding = element('p', { class: 'encoding' });
    this.scale = element('canvas', { width: '256', height: '1', 'aria-hidden': 'true' });
    this.low = element('span');
    this.high = element('span');
    this.legend = element('div', { class: 'legend' }, this.low, this.scale, this.high);
    this.sentence = element('p', { class: 'sentence', hidden: '' });
    this.curves = element('div', { class: 'curves', hidden: '' });
    this.predictions = element('ul', { class: 'predictions', 'aria-label': 'What the model sees' });
    this.node = element('article', { class: 'view' }, this.title, this.encoding,
      element('div', { class: 'canvas-box' }, this.canvas), this.legend, this.sentence, this.curves,
      this.predictions);
    this.title.textContent = model.name;
    this.encoding.textContent = model.encoding;
    const place = (event) => {
      if (!this.info) return null;
      const box = this.canvas.getBoundingClientRect();
      const at = (value, from, size, count) =>
        Math.min(count - 1, Math.max(0, Math.floor((value - from) / size * count)));
      return {
        y: at(event.clientY, box.top, box.height, this.info.rows),
        x: at(event.clientX, box.left, box.width, this.info.cols),
      };
    };
    this.canvas.addEventListener('pointermove', (event) => {
      if (event.pointerType === 'mouse') onPatch(this, place(event), false);
    });
    this.canvas.addEventListener('pointerdown', (event) => onPatch(this, place(event), true));
    this.canvas.addEventListener('keydown', (event) => onKey(this, event));
  }

  setPicture(picture, info) {
    this.picture = picture;
    this.info = info;
    this.rows = null;
    this.showPredictions();
  }

  showPredictions() {
    this.predictions.replaceChildren(...this.info.predictions.map((one) => {
      const bar = element('i');
      bar.style.width = `${100 * one.probability}%`;
      const name = element('span');
      name.textContent = one.class;
      if (one.class === this.info.label) {
        name.className = 'true';
        name.title = 'the true class';
      }
      const number = element('span', { class: 'number' });
      number.textContent = `${(100 * one.probability).toFixed(1)} %`;
      return element('li', {}, name, element('span', { class: 'bar' }, bar), number);
    }));
  }

  say(sentence) {
    this.sentence.hidden = !sentence;
    this.sentence.textContent = sentence || '';
    this.legend.hidden = Boolean(sentence);
    if (sentence) this.rows = null;
  }

  // Draws the image and, where there are values, the map over it.
  draw(state, scales, patch, held) {
    if (!this.info) return;
    const { rows, cols, height, width } = this.info;
    const side = 1024, scale = side / Math.max(height, width);
    const canvas = this.canvas;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const paint = canvas.getContext('2d');
    if (this.picture) {
      paint.imageSmoothingEnabled = this.picture.naturalWidth > 128;
      paint.drawImage(this.picture, 0, 0, canvas.width, canvas.height);
    }
    const cellX = canvas.width / cols, cellY = canvas.height / rows;
    const palette = scales[state.safe ? 'cividis' : 'green'];
    if (this.rows) {
      const table = palette[this.rows.kind];
      paint.globalAlpha = state.opacity / 100;
      this.rows.values.forEach((value, number) => {
        const x = number % cols, y = Math.floor(number / cols);
        if (value === null) {
          paint.fillStyle = css('--card');
        } else {
          const share = (value - this.rows.low) / (this.rows.high - this.rows.low || 1);
          const [r, g, b] = table[Math.round(Math.min(1, Math.max(0, share)) * (table.length - 1))];
          paint.fillStyle = `rgb(${r} ${g} ${b})`;
        }
        const left = Math.round(x * cellX), top = Math.round(y * cellY);
        paint.fillRect(left, top, Math.round((x + 1) * cellX) - left, Math.round((y + 1) * cellY) - top);
      });
      paint.globalAlpha = 1;
      this.drawScale(table);
    }
    if (state.lines && Math.min(cellX, cellY) >= 10) {
      paint.strokeStyle = 'rgba(128, 140, 134, 0.55)';
      paint.lineWidth = Math.min(2, cellX / 40);
      paint.beginPath();
      for (let x = 1; x < cols; x++) { paint.moveTo(x * cellX, 0); paint.lineTo(x * cellX, canvas.height); }
      for (let y = 1; y < rows; y++) { paint.moveTo(0, y * cellY); paint.lineTo(canvas.width, y * cellY); }
      paint.stroke();
    }
    if (patch) {
      const inset = Math.max(3, Math.min(cellX, cellY) / 16);
      const box = [patch.x * cellX, patch.y * cellY, cellX, cellY];
      paint.lineWidth = inset * 2;
      paint.strokeStyle = '#fff';
      paint.strokeRect(...box);
      paint.lineWidth = inset;
      paint.strokeStyle = held ? '#d9480f' : '#111';
      paint.strokeRect(...box);
    }
  }

  drawScale(table) {
    const paint = this.scale.getContext('2d');
    for (let i = 0; i < 256; i++) {
      const [r, g, b] = table[Math.round(i / 255 * (table.length - 1))];
      paint.fillStyle = `rgb(${r} ${g} ${b})`;
      paint.fillRect(i, 0, 1, 1);
    }
    const [low, high] = ends[this.rows.kind];
    this.low.textContent = `${short(this.rows.low)} ${low}`;
    this.high.textContent = `${high} ${short(this.rows.high)}`;
  }

  valueAt(patch) {
    return this.rows ? this.rows.values[patch.y * this.info.cols + patch.x] : null;
  }

  // The soft positions along the row and the column of the patch.
  drawCurves(patch) {
    const data = this.rows;
    const lines = [];
    if (data?.along_x) lines.push(['along the row', data.along_x, patch.x, '--curve-x']);
    if (data?.along_y) lines.push(['along the column', data.along_y, patch.y, '--curve-y']);
    if (data?.raster) lines.push(['in raster order', data.raster, patch.y * this.info.cols + patch.x, '--curve-x']);
    this.curves.hidden = lines.length === 0;
    if (!lines.length) return;
    const width = 420, height = 190, left = 40, right = 12, top = 26, bottom = 24;
    const all = lines.flatMap((line) => line[1]);
    let low = Math.min(0, ...all), high = Math.max(...all);
    if (high - low < 1e-9) high = low + 1;
    const placeY = (value) => top + (high - value) / (high - low) * (height - top - bottom);
    let text = '';
    for (let i = 0; i <= 4; i++) {
      const value = low + (high - low) * i / 4, y = placeY(value).toFixed(1);
      text += `<line x1="${left}" x2="${width - right}" y1="${y}" y2="${y}" stroke="var(--line)"/>` +
        `<text x="${left - 6}" y="${Number(y) + 4}" text-anchor="end">${short(value)}</text>`;
    }
    lines.forEach(([name, values, own, colour], number) => {
      const placeX = (i) => left + (values.length > 1 ? i / (values.length - 1) : 0.5) * (width - left - right);
      const points = values.map((value, i) => `${placeX(i).toFixed(1)},${placeY(value).toFixed(1)}`).join(' ');
      text += `<polyline points="${points}" fill="none" stroke="var(${colour})" stroke-width="2.2" ` +
        `stroke-linejoin="round"${number ? ' stroke-dasharray="7 3"' : ''}/>`;
      if (values.length <= 32) {
        values.forEach((value, i) => {
          text += `<circle cx="${placeX(i).toFixed(1)}" cy="${placeY(value).toFixed(1)}" ` +
            `r="${i === own ? 5.5 : 2.6}" fill="var(${colour})"/>`;
        });
      } else {
        text += `<circle cx="${placeX(own).toFixed(1)}" cy="${placeY(values[own]).toFixed(1)}" r="5.5" fill="var(${colour})"/>`;
      }
      text += `<text class="name ${number ? 'second' : 'first'}" x="${left + number * 150}" y="14">` +
        `${number ? '╌' : '—'} ${name}</text>`;
    });
    text += `<text x="${left}" y="${height - 6}">first patch</text>` +
      `<text x="${width - right}" y="${height - 6}" text-anchor="end">last patch</text>`;
    const wrapped = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" ` +
      `aria-label="Soft positions seen from the patch">${text}</svg>`;
    this.curves.innerHTML = wrapped;  // numbers and our own words only
  }
}
