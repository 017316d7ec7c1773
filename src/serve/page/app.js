import { View } from './view.js';
import { ask, readState, requestQuery, viewQuery, writeState } from './state.js';

const by = (id) => document.getElementById(id);
const titles = {
  bias: 'Bias', 'bias-x': 'x part', 'bias-y': 'y part', gates: 'Gates', positions: 'Positions', attention: 'Attention',
};
const rowsKept = 4000;  // answers of /api/rows

const state = readState();
let setup = null;
let views = [];
let held = state.y >= 0;
let wanted = 0;        // number of the newest request for an image
const known = new Map();

function complain(error) {
  by('message').textContent = error.message || String(error);
  by('message').hidden = false;
}

function settle() {
  by('message').hidden = true;
}

const patch = () => (state.y >= 0 ? { y: state.y, x: state.x } : null);

// ---- asking for rows

const asking = new Map();  // view → what ends its request

async function fetchRows(view, from) {
  const path = '/api/rows?' + viewQuery(state, view.model.index, from);
  if (known.has(path)) return known.get(path);
  const controller = new AbortController();
  asking.get(view)?.abort();
  asking.set(view, controller);
  const rows = await ask(path, { signal: controller.signal });
  known.set(path, rows);
  if (known.size > rowsKept) known.delete(known.keys().next().value);
  return rows;
}

function onThisGrid(view, from) {
  const first = views[0].info, here = view.info;
  const place = (at, n, m) => Math.min(m - 1, Math.floor((2 * at + 1) * m / (2 * n)));
  return { y: place(from.y, first.rows, here.rows), x: place(from.x, first.cols, here.cols) };
}

async function refreshView(view) {
  const from = patch();
  if (!view.info || !from) return;
  const offer = view.info.offers[state.what];
  const here = onThisGrid(view, from);
  if (offer !== true) {
    view.say(offer[0].toUpperCase() + offer.slice(1) + '.');
    view.curves.hidden = true;
    view.draw(state, setup.scales, here, held);
    return;
  }
  view.say('');
  view.draw(state, setup.scales, here, held);  // the frame follows at once, the map when it is there
  try {
    const began = performance.now();
    view.rows = await fetchRows(view, here);
    view.node.dataset.milliseconds = (performance.now() - began).toFixed(1);
    view.node.dataset.patch = `${here.y},${here.x}`;
    view.node.dataset.what = state.what;
    view.node.dataset.layer = state.layer;
    view.node.dataset.head = state.head;
    view.draw(state, setup.scales, here, held);
    view.drawCurves(here);
    tell();
  } catch (error) {
    if (error.name !== 'AbortError') complain(error);
  }
}

function refresh() {
  for (const view of views) refreshView(view);
  writeState(state);
  by('layer-text').value = state.layer ? `${state.layer} of ${by('layer').max}` : 'mean';
  by('head-text').value = state.head ? `${state.head} of ${by('head').max}` : 'mean';
  by('opacity-text').value = `${state.opacity} %`;
  for (const link of by('downloads').children) {
    const format = link.dataset.format;
    const more = { format, colours: state.safe ? 'cividis' : 'green' };
    if (state.model2 >= 0) more.model2 = state.model2;
    link.href = '/api/figure?' + (patch() ? viewQuery(state, state.model, patch(), more)
      : requestQuery(state, state.model, { what: state.what, ...more }));
    link.download = `sape2-${state.what}.${format}`;
  }
}

function tell() {
  const from = patch(), view = views[0];
  if (!from || !view.rows) return;
  const values = view.rows.values.filter((value) => value !== null);
  const nearest = `from patch ${from.y},${from.x}: ${values.length} values from ` +
    `${Math.min(...values).toPrecision(3)} to ${Math.max(...values).toPrecision(3)}`;
  by('status').textContent = `${titles[state.what]} ${nearest}${held ? ' (held)' : ''}`;
}

// ---- pointing

function onPatch(view, place, tapped) {
  if (!place) return;
  const first = views[0].info, here = view.info;
  const back = (at, n, m) => Math.min(m - 1, Math.floor((2 * at + 1) * m / (2 * n)));
  const next = { y: back(place.y, here.rows, first.rows), x: back(place.x, here.cols, first.cols) };
  if (tapped) held = !(held && next.y === state.y && next.x === state.x);
  if (held && !tapped) return;
  if (!tapped && next.y === state.y && next.x === state.x) return;
  state.y = next.y;
  state.x = next.x;
  refresh();
}

function onKey(view, event) {
  const info = views[0].info;
  if (!info) return;
  const from = patch() || { y: 0, x: 0 };
  const moves = {
    ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
    Home: [0, -from.x], End: [0, info.cols - 1 - from.x],
    s: [info.subject[0] - from.y, info.subject[1] - from.x],
    b: [info.background[0] - from.y, info.background[1] - from.x],
  };
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (key === 'Enter' || key === ' ') {
    held = !held;
  } else if (key in moves && !event.ctrlKey && !event.metaKey && !event.altKey) {
    held = true;
    state.y = Math.min(info.rows - 1, Math.max(0, from.y + moves[key][0]));
    state.x = Math.min(info.cols - 1, Math.max(0, from.x + moves[key][1]));
  } else {
    return;
  }
  event.preventDefault();
  refresh();
}

// ---- images

function loadPicture(name) {
  return new Promise((resolve, reject) => {
    const picture = new Image();
    picture.onload = () => resolve(picture);
    picture.onerror = () => reject(new Error('The image is not kept on the server any more; drop it again.'));
    picture.src = '/api/picture?' + new URLSearchParams({ image: name });
  });
}

async function showImage() {
  if (!state.image) return;
  const number = ++wanted;
  try {
    const [picture, ...infos] = await Promise.all([loadPicture(state.image),
      ...views.map((view) => ask('/api/inspect?' + requestQuery(state, view.model.index)))]);
    if (number !== wanted) return;
    views.forEach((view, i) => view.setPicture(picture, infos[i]));
    const first = infos[0];
    if (state.y < 0 || state.y >= first.rows || state.x >= first.cols) {
      [state.y, state.x] = first.subject;
      held = false;
    }
    showOffers(infos);
    settle();
    for (const button of by('thumbs').children) {
      button.setAttribute('aria-pressed', String('data:' + button.dataset.index === state.image));
    }
    refresh();
    document.body.dataset.ready = state.image;
    document.body.dataset.grid = `${first.rows}×${first.cols}`;
  } catch (error) {
    complain(error);
  }
}

// What no model on show has is greyed out, with the reason as a title.
function showOffers(infos) {
  for (const input of by('what').querySelectorAll('input')) {
    const reasons = infos.map((info) => info.offers[input.value]);
    const none = reasons.every((reason) => reason !== true);
    input.disabled = none && input.value !== state.what;
    input.parentElement.title = none ? reasons[0] : '';
  }
}

async function upload(file) {
  try {
    if (file.size > setup.limits.body_bytes) {
      throw new Error(`The file has ${(file.size / 2 ** 20).toFixed(1)} MiB; at most ` +
        `${setup.limits.body_bytes / 2 ** 20} MiB are taken.`);
    }
    const kept = await ask('/api/images', { method: 'POST', body: file });
    choose(kept.image);
  } catch (error) {
    complain(error);
  }
}

function choose(image) {
  state.image = image;
  state.y = state.x = -1;
  held = false;
  known.clear();
  showImage();
}

function thumbnails(from) {
  const count = Math.min(20, setup.data.images);
  const begin = Math.max(0, Math.min(from, setup.data.images - count));
  by('thumbs').replaceChildren(...Array.from({ length: count }, (_, i) => {
    const index = begin + i, button = document.createElement('button'), image = new Image();
    image.src = `/api/picture?image=data:${index}`;
    image.alt = `image ${index}`;
    image.loading = 'lazy';
    button.type = 'button';
    button.dataset.index = index;
    button.setAttribute('aria-pressed', String(`data:${index}` === state.image));
    button.append(image);
    button.addEventListener('click', () => {
      by('index').value = index;
      choose(`data:${index}`);
    });
    return button;
  }));
}

// ---- models

function makeViews() {
  const numbers = [state.model, state.model2].filter((number) => number >= 0 && number < setup.models.length);
  views = numbers.map((index) => new View({ ...setup.models[index], index }, onPatch, onKey));
  by('views').replaceChildren(...views.map((view) => view.node));
  for (const name of ['layer', 'head']) {  // those that all models on show have
    by(name).max = Math.min(...views.map((view) => view.model[name + 's']));
    state[name] = Math.min(state[name], Number(by(name).max));
    by(name).value = state[name];
  }
  makeSizes();
  known.clear();
}

const option = (value, text, selected) => new Option(text, value, false, selected);

function makeSizes() {
  const { image_size: image, patch_size: size } = setup.models[state.model];
  const trained = Math.min(...image), side = Math.min(...size);
  const sizes = [1, 2, 4, 8, 16].map((factor) => trained * factor)
    .filter((pixels) => (pixels / side) ** 2 <= setup.limits.patches);
  if (state.size && !sizes.includes(state.size)) sizes.push(state.size);
  by('size').replaceChildren(...sizes.map((pixels) => {
    const count = Math.round(pixels / side), own = pixels === trained;
    return option(own ? 0 : pixels, `${count}×${count}${own ? ' (trained)' : ''}`,
      own ? !state.size : state.size === pixels);
  }));
}

function makeControls() {
  by('what').append(...setup.what.map((name) => {
    const label = document.createElement('label'), input = document.createElement('input'),
      text = document.createElement('span');
    Object.assign(input, { type: 'radio', name: 'what', value: name, checked: name === state.what });
    text.textContent = titles[name] || name;
    label.append(input, text);
    input.addEventListener('change', () => { state.what = name; refresh(); });
    return label;
  }));
  setup.models.forEach((model, i) => {
    by('model').append(option(i, model.name, i === state.model));
    by('model2').append(option(i, model.name, i === state.model2));
  });
  by('model2').prepend(option(-1, 'nothing', state.model2 < 0));
  for (const id of ['model', 'model2', 'size']) {
    by(id).addEventListener('change', () => {
      state[id] = Number(by(id).value);
      if (id === 'size') { state.y = state.x = -1; held = false; known.clear(); }
      if (id !== 'size') makeViews();
      showImage();
    });
  }
  for (const id of ['layer', 'head', 'opacity']) {
    by(id).addEventListener('input', () => { state[id] = Number(by(id).value); refresh(); });
  }
  for (const id of ['safe', 'lines']) {
    by(id).checked = state[id];
    by(id).addEventListener('change', () => { state[id] = by(id).checked; refresh(); });
  }
  by('opacity').value = state.opacity;
}

function makePictures() {
  const drop = by('drop'), file = by('file');
  file.addEventListener('change', () => { if (file.files[0]) upload(file.files[0]); file.value = ''; });
  drop.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); file.click(); }
  });
  document.body.addEventListener('dragover', (event) => { event.preventDefault(); drop.classList.add('over'); });
  document.body.addEventListener('dragleave', () => drop.classList.remove('over'));
  document.body.addEventListener('drop', (event) => {
    event.preventDefault();
    drop.classList.remove('over');
    if (event.dataTransfer.files[0]) upload(event.dataTransfer.files[0]);
  });
  if (!setup.data) return;
  by('data').hidden = false;
  by('data-name').textContent = `${setup.data.name}, ${setup.data.split} images`;
  by('index').max = setup.data.images - 1;
  const chosen = /^data:(\d+)$/.exec(state.image);
  if (chosen) by('index').value = chosen[1];
  thumbnails(chosen ? Number(chosen[1]) : 0);
  by('index').addEventListener('change', () => {
    const index = Math.min(setup.data.images - 1, Math.max(0, Math.floor(Number(by('index').value) || 0)));
    by('index').value = index;
    thumbnails(index);
    choose(`data:${index}`);
  });
  by('more').addEventListener('click', () => thumbnails(Math.floor(Math.random() * setup.data.images)));
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  by('theme').textContent = theme === 'dark' ? 'Light' : 'Dark';
  if (views.length) refresh();
}

function makeTheme() {
  const asked = matchMedia('(prefers-color-scheme: dark)');
  let own = null;
  try { own = localStorage.getItem('theme'); } catch { /* no storage: the system's choice */ }
  setTheme(own || (asked.matches ? 'dark' : 'light'));
  asked.addEventListener('change', () => { if (!own) setTheme(asked.matches ? 'dark' : 'light'); });
  by('theme').addEventListener('click', () => {
    own = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
    try { localStorage.setItem('theme', own); } catch { /* it lasts as long as the page */ }
    setTheme(own);
  });
  by('copy-link').addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      by('copy-link').textContent = 'Copied';
    } catch {
      by('copy-link').textContent = 'It is in the address bar';
    }
    setTimeout(() => { by('copy-link').textContent = 'Copy link'; }, 1600);
  });
}

async function begin() {
  makeTheme();
  try {
    setup = await ask('/api/setup');
  } catch (error) {
    complain(error);
    return;
  }
  if (state.model < 0 || state.model >= setup.models.length) state.model = 0;
  if (state.model2 >= setup.models.length) state.model2 = -1;
  if (!setup.what.includes(state.what)) state.what = 'bias';
  if (!state.image && setup.data) state.image = 'data:0';
  makeControls();
  makeViews();
  makePictures();
  showImage();
}

begin();
