// Numbers, round ticks, patches and curves: what views are drawn with.

const minus = (text) => text.replace('-', '−');
export const short = (value, digits = 3) =>
  (value === null || value === undefined ? '–' : minus(Number(value.toPrecision(digits)).toString()));
export const decimals = (value) => minus(value.toFixed(2));
export const signed = (value) => (value < 0 ? '−' : '+') + Math.abs(value).toFixed(2);

// What adding to a logit does to the weight, in two digits that matter: near 1 those behind the point.
export function factor(logits) {
  const value = Math.exp(logits);
  if (value >= 1e4 || value < 1e-3) return '×' + minus(value.toExponential(0));
  if (value >= 9.95) return '×' + value.toFixed(0);
  if (value >= 1.995) return '×' + value.toFixed(1);
  return '×' + (value >= 0.095 ? value.toFixed(2) : Number(value.toPrecision(2)));
}

export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Round numbers from low to high, about `count` of them and never one alone, a step of 1, 2 or 5 times a power of ten
// apart.
export function roundTicks(low, high, count) {
  if (!(high > low)) return [{ value: low, text: short(low) }];
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((one) => one * power >= rough * (1 - 1e-9));
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  if (last <= first) return roundTicks(low, high, count + 1);
  const digits = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
  const ticks = [];
  for (let i = first; i <= last; i++) {
    ticks.push({ value: i * step, text: minus((i === 0 ? 0 : i * step).toFixed(digits)) });
  }
  return ticks;
}

export const rgb = ([r, g, b]) => `rgb(${r} ${g} ${b})`;
const isLight = ([r, g, b]) => 0.30 * r + 0.59 * g + 0.11 * b > 140;

// The colour of a value in a scale of `table.length` steps.
export function colourOf(rows, table, value) {
  const share = (value - rows.low) / (rows.high - rows.low || 1);
  return table[Math.round(Math.min(1, Math.max(0, share)) * (table.length - 1))];
}

function eachCell(canvas, { rows, cols }, work) {
  const cellX = canvas.width / cols, cellY = canvas.height / rows;
  for (let y = 0; y < rows; y++) {
    for (let x = 0; x < cols; x++) {
      const left = Math.round(x * cellX), top = Math.round(y * cellY);
      work(y * cols + x, left, top, Math.round((x + 1) * cellX) - left, Math.round((y + 1) * cellY) - top);
    }
  }
}

export function paintValues(canvas, rows, table, opacity, nothing) {
  const paint = canvas.getContext('2d');
  paint.globalAlpha = opacity;
  eachCell(canvas, rows, (number, left, top, width, height) => {
    const value = rows.values[number];
    paint.fillStyle = value === null ? nothing : rgb(colourOf(rows, table, value));
    paint.fillRect(left, top, width, height);
  });
  paint.globalAlpha = 1;
}

// The values as text, where patches are large enough to read them.
export function paintNumbers(canvas, rows, table, leastCell) {
  const paint = canvas.getContext('2d');
  const cell = canvas.width / rows.cols;
  if (cell < leastCell) return false;
  const percent = rows.kind === 'share';
  const text = (value) => (percent ? short(100 * value, 2) : minus(value.toFixed(Math.abs(value) < 9.95 ? 1 : 0)));
  paint.font = `${Math.round(cell * 0.3)}px system-ui, sans-serif`;
  paint.textAlign = 'center';
  paint.textBaseline = 'middle';
  eachCell(canvas, rows, (number, left, top, width, height) => {
    const value = rows.values[number];
    if (value === null) return;
    paint.fillStyle = isLight(colourOf(rows, table, value)) ? '#17201b' : '#fff';
    paint.fillText(text(value), left + width / 2, top + height / 2);
  });
  return true;
}

export function paintLines(canvas, { rows, cols }) {
  const cellX = canvas.width / cols, cellY = canvas.height / rows;
  if (Math.min(cellX, cellY) < 10) return;
  const paint = canvas.getContext('2d');
  paint.strokeStyle = 'rgba(128, 140, 134, 0.55)';
  paint.lineWidth = Math.min(2, cellX / 40);
  paint.beginPath();
  for (let x = 1; x < cols; x++) { paint.moveTo(x * cellX, 0); paint.lineTo(x * cellX, canvas.height); }
  for (let y = 1; y < rows; y++) { paint.moveTo(0, y * cellY); paint.lineTo(canvas.width, y * cellY); }
  paint.stroke();
}

// A frame with a white edge: to be seen on any ground. The patch that is read has a dashed one.
export function paintFrame(canvas, { rows, cols }, patch, colour, dashed = false) {
  const paint = canvas.getContext('2d');
  const cellX = canvas.width / cols, cellY = canvas.height / rows;
  const thick = Math.max(3, Math.min(cellX, cellY) / 16);
  const box = [patch.x * cellX, patch.y * cellY, cellX, cellY];
  paint.setLineDash([]);
  paint.lineWidth = thick * 2;
  paint.strokeStyle = '#fff';
  paint.strokeRect(...box);
  paint.lineWidth = thick;
  paint.strokeStyle = colour;
  if (dashed) paint.setLineDash([thick * 2, thick * 1.4]);
  paint.strokeRect(...box);
  paint.setLineDash([]);
}

// The soft positions along the row and the column of the patch, and what even steps would give.
export function curvesOf(data, patch) {
  const lines = [];
  if (data?.along_x) lines.push(['along the row', data.along_x, patch.x, '--curve-x']);
  if (data?.along_y) lines.push(['along the column', data.along_y, patch.y, '--curve-y']);
  if (data?.raster) lines.push(['in raster order', data.raster, patch.y * data.cols + patch.x, '--curve-x']);
  if (!lines.length) return '';
  const width = 460, height = 196, left = 34, right = 14, top = 26, bottom = 30;
  const all = lines.flatMap((line) => line[1]);
  let low = Math.min(0, ...all), high = Math.max(...all);
  if (high - low < 1e-9) high = low + 1;
  const placeY = (value) => top + (high - value) / (high - low) * (height - top - bottom);
  let text = '';
  for (const tick of roundTicks(low, high, 5)) {
    const y = placeY(tick.value).toFixed(1);
    text += `<line x1="${left}" x2="${width - right}" y1="${y}" y2="${y}" stroke="var(--line)"/>` +
      `<text x="${left - 6}" y="${Number(y) + 4}" text-anchor="end">${tick.text}</text>`;
  }
  const longest = Math.max(...lines.map((line) => line[1].length));
  const placeOf = (count) => (i) => left + (count > 1 ? i / (count - 1) : 0.5) * (width - left - right);
  for (const tick of roundTicks(0, longest - 1, 8)) {
    text += `<text x="${placeOf(longest)(tick.value).toFixed(1)}" y="${height - bottom + 15}" ` +
      `text-anchor="middle">${tick.text}</text>`;
  }
  lines.forEach(([name, values, own, colour], number) => {
    const placeX = placeOf(values.length);
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length, middle = (values.length - 1) / 2;
    const spread = values.reduce((sum, _, i) => sum + (i - middle) ** 2, 0) || 1;
    const slope = values.reduce((sum, value, i) => sum + (i - middle) * value, 0) / spread;
    const even = [0, values.length - 1].map((i) =>
      `${placeX(i).toFixed(1)},${placeY(mean + slope * (i - middle)).toFixed(1)}`).join(' ');
    text += `<polyline class="even" points="${even}" fill="none" stroke="var(--soft)" stroke-width="1" ` +
      'stroke-dasharray="2 3"/>';
    const points = values.map((value, i) => `${placeX(i).toFixed(1)},${placeY(value).toFixed(1)}`).join(' ');
    text += `<polyline points="${points}" fill="none" stroke="var(${colour})" stroke-width="2.2" ` +
      `stroke-linejoin="round"${number ? ' stroke-dasharray="7 3"' : ''}/>`;
    values.forEach((value, i) => {
      if (values.length > 32 && i !== own) return;
      text += `<circle cx="${placeX(i).toFixed(1)}" cy="${placeY(value).toFixed(1)}" ` +
        `r="${i === own ? 5.5 : 2.6}" fill="var(${colour})"/>`;
    });
    text += `<text class="name ${number ? 'second' : 'first'}" x="${left + number * 130}" y="14">` +
      `${number ? '╌' : '—'} ${name}</text>`;
  });
  text += `<text x="${width - right}" y="14" text-anchor="end">┈ even steps</text>` +
    `<text x="${(left + width - right) / 2}" y="${height - 2}" text-anchor="middle">column or row of the patch</text>`;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" ` +
    `aria-label="Soft positions seen from the patch">${text}</svg>`;
}
