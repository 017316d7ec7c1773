import { element } from './draw.js';

// A canvas in patches that says which one the pointer or the keyboard is at.
export class PatchCanvas {
  constructor(label, handlers) {
    this.grid = null;
    this.canvas = element('canvas', { tabindex: '0', role: 'application', 'aria-label': label });
    this.tip = element('div', { class: 'tip', hidden: '' });
    this.box = element('div', { class: 'canvas-box' }, this.canvas, this.tip);
    const place = (event) => {
      const box = this.canvas.getBoundingClientRect();
      const at = (value, from, size, count) =>
        Math.min(count - 1, Math.max(0, Math.floor((value - from) / size * count)));
      return {
        y: at(event.clientY, box.top, box.height, this.grid.rows),
        x: at(event.clientX, box.left, box.width, this.grid.cols),
      };
    };
    this.canvas.addEventListener('pointermove', (event) => {
      if (this.grid && event.pointerType === 'mouse') handlers.point(place(event));
    });
    this.canvas.addEventListener('pointerdown', (event) => { if (this.grid) handlers.press(place(event)); });
    this.canvas.addEventListener('pointerleave', () => { if (this.grid) handlers.leave(); });
    this.canvas.addEventListener('keydown', (event) => { if (this.grid) handlers.key(event); });
    this.canvas.addEventListener('focus', () => { if (this.grid) handlers.focus?.(); });
  }

  // Fresh, of the grid's proportions.
  clear(picture) {
    const width = picture.naturalWidth, height = picture.naturalHeight;
    const scale = 720 / Math.max(width, height);
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    return this.canvas.getContext('2d');
  }

  tell(patch, words) {
    this.tip.hidden = !patch;
    if (!patch) return;
    this.tip.textContent = words;
    const { rows, cols } = this.grid;
    const half = 50 * this.tip.offsetWidth / (this.box.clientWidth || 1);  // so that it stays on the map
    this.tip.style.left = `${Math.min(100 - half, Math.max(half, 100 * (patch.x + 0.5) / cols))}%`;
    const below = patch.y < rows / 3;
    this.tip.classList.toggle('below', below);
    this.tip.style.top = `${100 * (patch.y + (below ? 1 : 0)) / rows}%`;
  }
}
