import { backend } from './backend.js';
import { ImageView, MapView, titles, valueText } from './view.js';
import { makeIntro, makeLink, makeTheme } from './header.js';
import { makePictures } from './pictures.js';
import { readState, requestQuery, viewQuery, writeState } from './state.js';

const by = (id) => document.getElementById(id);
const rowsKept = 4000;     // answers of /api/rows
const patience = 150;      // ms before the page says that it waits
const detailsDelay = 60;   // ms of rest before a reading asks for more

const state = readState();
let setup = null;
let image = null;      // the image's view
let views = [];        // one map for each model
let preview = null;    // the patch under the pointer, until it leaves
let read = null;       // the patch whose values are read, on the first model's grid
let wanted = 0;        // number of the newest request for an image
let detailsTimer = 0;
const known = new Map();

function complain(error) {
  by('message').textContent = error.message || String(error);
  by('message').hidden = false;
}

function settle() {
  by('message').hidden = true;
}

const chosen = () => preview || (state.y >= 0 ? { y: state.y, x: state.x } : null);

// The patch of another grid that lies at the same place of the image.
function moved(patch, from, to) {
  const place = (at, n, m) => Math.min(m - 1, Math.floor((2 * at + 1) * m / (2 * n)));
  return patch && { y: place(patch.y, from.rows, to.rows), x: place(patch.x, from.cols, to.cols) };
}
const onGridOf = (view, patch) => moved(patch, views[0].info, view.info);

// ---- asking for rows

const asking = new Map();  // view → what ends its request

async function fetchRows(view, what, from, options) {
  const path = '/api/rows?' + viewQuery({ ...state, what }, view.model.index, from);
  if (known.has(path)) return known.get(path);
  const rows = await backend.ask(path, options);
  known.set(path, rows);
  if (known.size > rowsKept) known.delete(known.keys().next().value);
  return rows;
}

function drawView(view) {
  view.draw(state, setup.scales, { chosen: onGridOf(view, chosen()), read: onGridOf(view, read) });
}

function drawImage() {
  image.draw(state, setup.scales, { chosen: chosen(), read, preview: preview !== null, rows: views[0].rows });
}

async function refreshView(view) {
  const from = chosen();
  if (!view.info || !from) return;
  const offer = view.info.offers[state.what];
  const here = onGridOf(view, from);
  asking.get(view)?.abort();
  if (offer !== true) {
    view.refuse(offer[0].toUpperCase() + offer.slice(1) + '.');
    drawView(view);
    return;
  }
  if (!view.rows) drawView(view);  // rather nothing than another image's map
  const controller = new AbortController();
  asking.set(view, controller);
  const slow = setTimeout(() => view.node.classList.add('waiting'), patience);
  try {
    const began = performance.now();
    const rows = await fetchRows(view, state.what, here, { signal: controller.signal });
    if (controller.signal.aborted) return;
    view.setRows(rows);
    drawView(view);
    if (view === views[0]) drawImage();
    Object.assign(view.node.dataset, {
      milliseconds: (performance.now() - began).toFixed(1), patch: `${here.y},${here.x}`, what: state.what,
      layer: state.layer, head: state.head,
    });
    tell();
    askForDetails();
  } catch (error) {
    if (error.name !== 'AbortError') complain(error);
  } finally {
    clearTimeout(slow);
  }
}

// What else is known of the pair of patches that is read: bias, attention and positions.
function askForDetails() {
  clearTimeout(detailsTimer);
  if (read) detailsTimer = setTimeout(() => views.forEach(addDetails), detailsDelay);
}

async function addDetails(view) {
  const rows = view.rows;
  if (!rows) return;
  const from = { y: rows.y, x: rows.x };
  for (const what of ['attention', 'bias', 'positions']) {
    if (what === state.what || view.info.offers[what] !== true || view.details[what]) continue;
    try {
      const more = await fetchRows(view, what, from);
      if (view.rows !== rows) return;  // another patch by now
      view.details[what] = more;
    } catch (error) {
      complain(error);
      return;
    }
  }
  drawView(view);
  tell();
}

function refresh() {
  for (const view of views) refreshView(view);
  drawImage();
  writeState(state);
  by('layer-text').value = state.layer ? `${state.layer} of ${by('layer').max}` : 'mean of all';
  by('head-text').value = state.head ? `${state.head} of ${by('head').max}` : 'mean of all';
  const from = state.y >= 0 ? { y: state.y, x: state.x } : null;
  if (!backend.hasFigures) return;
  for (const link of by('downloads').children) {
    const format = link.dataset.format;
    const more = { format, colours: state.safe ? 'cividis' : 'green' };
    if (state.model2 >= 0) more.model2 = state.model2;
    link.href = backend.figureAddress(from ? viewQuery(state, state.model, from, more)
      : requestQuery(state, state.model, { what: state.what, ...more }));
    link.download = `sape2-${state.what}.${format}`;
  }
}

// For those who hear the page.
function tell() {
  const from = chosen(), view = views[0];
  if (!from || !view.rows) return;
  const what = `${titles[state.what]} from patch ${from.y},${from.x}`;
  const values = view.rows.values.filter((value) => value !== null);
  by('status').textContent = read
    ? `${what} to ${read.y},${read.x}: ${valueText(view.rows, view.at(view.rows, onGridOf(view, read)))} ` +
      view.effectText(view.rows, view.at(view.rows, onGridOf(view, read)))
    : `${what}: ${values.length} values from ${valueText(view.rows, Math.min(...values))} to ` +
      valueText(view.rows, Math.max(...values));
}

// ---- pointing

const same = (a, b) => a && b && a.y === b.y && a.x === b.x;

const imageHandlers = {
  point(place) {
    if (same(place, chosen())) return;
    preview = place;
    refresh();
  },
  press(place) {
    preview = null;
    state.y = place.y;
    state.x = place.x;
    refresh();
  },
  leave() {
    if (!preview) return;
    preview = null;
    refresh();
  },
  key(event) {
    const next = movedByKey(event, chosen() || { y: 0, x: 0 });
    if (!next) return;
    imageHandlers.press(next);
  },
};

function setRead(view, place) {
  const next = moved(place, view.info, views[0].info);
  if (same(next, read)) return;
  read = next;
  views.forEach(drawView);
  drawImage();
  tell();
  askForDetails();
}

const mapHandlers = {
  read: (view, place) => setRead(view, place),
  leaveMap: () => {},  // the last reading stays, to be compared
  // The classes of a pixel of the mask, or nothing.
  async pixel(view, place, options) {
    try {
      const query = requestQuery(state, view.model.index, place);
      return (await backend.ask('/api/pixel?' + query, options)).predictions;
    } catch (error) {
      if (error.name !== 'AbortError') complain(error);
      return null;
    }
  },
  say: (words) => { by('status').textContent = words; },
  readKey(view, event) {
    if (event.key === 'Escape' && read) {
      event.preventDefault();
      read = null;
      views.forEach(drawView);
      drawImage();
      return;
    }
    const next = movedByKey(event, onGridOf(view, read || chosen()));
    if (next) setRead(view, next);
  },
  focusMap(view) {
    if (!read && view.rows && view.patches.canvas.matches(':focus-visible')) setRead(view, onGridOf(view, chosen()));
  },
};

// Where a key leads from a patch of the first model's grid, or nothing.
function movedByKey(event, from) {
  const info = views[0].info;
  const moves = {
    ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
    Home: [0, -from.x], End: [0, info.cols - 1 - from.x],
    s: [info.subject[0] - from.y, info.subject[1] - from.x],
    b: [info.background[0] - from.y, info.background[1] - from.x],
  };
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (!(key in moves) || event.ctrlKey || event.metaKey || event.altKey) return null;
  event.preventDefault();
  return {
    y: Math.min(info.rows - 1, Math.max(0, from.y + moves[key][0])),
    x: Math.min(info.cols - 1, Math.max(0, from.x + moves[key][1])),
  };
}

// ---- images

function loadPicture(name) {
  return new Promise((resolve, reject) => {
    const picture = new Image();
    picture.onload = () => resolve(picture);
    picture.onerror = () => reject(new Error('The image is not kept any more; drop it again.'));
    picture.src = backend.pictureAddress(name) ?? 'data:,';
  });
}

// A model has looked at the image; one for segmentation has seen a mask.
async function inspect(view) {
  const query = requestQuery(state, view.model.index), info = await backend.ask('/api/inspect?' + query);
  if (info.mask) info.mask = await backend.ask('/api/mask?' + query);
  return info;
}

async function showImage() {
  by('empty').hidden = Boolean(state.image);
  by('board').hidden = by('words').hidden = !state.image;
  by('saving').hidden = !state.image || !backend.hasFigures;
  if (!state.image) return;
  const number = ++wanted;
  const slow = setTimeout(() => by('board').classList.add('waiting'), patience);
  by('board').setAttribute('aria-busy', 'true');
  try {
    const [picture, ...infos] = await Promise.all([loadPicture(state.image), ...views.map(inspect)]);
    if (number !== wanted) return;
    views.forEach((view, i) => view.setPicture(picture, infos[i]));
    const first = infos[0];
    image.setPicture(picture, first);
    if (state.y < 0 || state.y >= first.rows || state.x >= first.cols) [state.y, state.x] = first.subject;
    if (read && (read.y >= first.rows || read.x >= first.cols)) read = null;
    showOffers(infos);
    settle();
    for (const button of by('thumbs').children) {
      button.setAttribute('aria-pressed', String('data:' + button.dataset.index === state.image));
    }
    refresh();
    document.body.dataset.ready = state.image;
    document.body.dataset.grid = `${first.rows}×${first.cols}`;
  } catch (error) {
    if (number === wanted) complain(error);
  } finally {
    clearTimeout(slow);
    if (number === wanted) {
      by('board').classList.remove('waiting');
      by('board').setAttribute('aria-busy', 'false');
    }
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

function forgetPatches() {
  state.y = state.x = -1;
  preview = read = null;
}

async function upload(file) {
  try {
    if (backend.takesModels && file.name.endsWith('.safetensors')) return await addModel(file);
    if (file.size > setup.limits.body_bytes) {
      throw new Error(`The file has ${(file.size / 2 ** 20).toFixed(1)} MiB; at most ` +
        `${setup.limits.body_bytes / 2 ** 20} MiB are taken.`);
    }
    choose(await backend.addImage(file));
  } catch (error) {
    complain(error);
  }
}

function choose(name) {
  state.image = name;
  forgetPatches();
  known.clear();
  if (views.length) showImage();
}

// ---- models

// Names that differ in their first letters: the encoding; the name where encodings are alike, without what
// all names begin with.
function labelsOf(models) {
  const alike = new Set(models.map((model) => model.encoding)).size < models.length;
  if (!alike) return models.map((model) => model.encoding);
  let common = 0;
  const names = models.map((model) => model.name);
  while (names.every((name) => common < name.length - 1 && name[common] === names[0][common])) common++;
  const begin = common > 6 ? Math.max(names[0].lastIndexOf('-', common), 0) : 0;
  return models.map((model) => `${begin ? '…' : ''}${model.name.slice(begin)} – ${model.encoding}`);
}

function makeViews() {
  const numbers = [state.model, state.model2].filter((number) => number >= 0 && number < setup.models.length);
  const shown = numbers.map((index) => setup.models[index]);
  const alike = shown.length > 1 && shown[0].encoding === shown[1].encoding;
  views = numbers.map((index) => {
    const model = { ...setup.models[index], index };
    return new MapView(model, alike ? labelsOf(setup.models)[index] : model.encoding, mapHandlers);
  });
  by('board').replaceChildren(image.node, ...views.map((view) => view.node));
  if (views.length === 1 && views[0].mask) by('board').append(views[0].mask.panel());
  else for (const view of views) if (view.mask) view.seen.append(view.mask.node);  // no room beside two maps
  by('board').dataset.panels = by('board').children.length;
  by('words').replaceChildren(...views.map((view) => view.words));
  for (const name of ['layer', 'head']) {  // those that all models on show have
    by(name).max = Math.min(...views.map((view) => view.model[name + 's']));
    state[name] = Math.min(state[name], Number(by(name).max));
    by(name).value = state[name];
  }
  for (const id of ['model', 'model2']) by(id).title = setup.models[state[id]]?.name || '';
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

function listModels() {
  const labels = labelsOf(setup.models);
  by('model').replaceChildren(...labels.map((label, i) => option(i, label, i === state.model)));
  by('model2').replaceChildren(option(-1, 'nothing', state.model2 < 0),
    ...labels.map((label, i) => option(i, label, i === state.model2)));
}

// A model that somebody gave stands beside the one on show.
async function addModel(file) {
  const number = await backend.addModel(file);
  setup = await backend.ask('/api/setup');
  if (number > 0) state.model2 = number;
  settle();
  showModels();
}

function showModels() {
  by('controls').hidden = !setup.models.length;
  if (!setup.models.length) {
    by('empty').textContent = 'Drop a model file (.safetensors) on this page to begin.';
    by('empty').hidden = false;
    return;
  }
  by('empty').textContent = 'Drop an image on this page to begin.';
  listModels();
  makeViews();
  showImage();
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
  for (const id of ['model', 'model2', 'size']) {
    by(id).addEventListener('change', () => {
      state[id] = Number(by(id).value);
      if (id === 'size') { forgetPatches(); known.clear(); }
      if (id !== 'size') makeViews();
      showImage();
    });
  }
  for (const id of ['layer', 'head']) {
    by(id).addEventListener('input', () => { state[id] = Number(by(id).value); refresh(); });
  }
  for (const id of ['safe', 'lines', 'numbers']) {
    by(id).checked = state[id];
    by(id).addEventListener('change', () => { state[id] = by(id).checked; refresh(); });
  }
  image.opacity.value = state.opacity;
  image.opacity.addEventListener('input', () => {
    state.opacity = Number(image.opacity.value);
    drawImage();
    writeState(state);
  });
}

function tellLoading(words) {
  by('loading').textContent = words;
  by('loading').hidden = false;
}

async function begin() {
  makeTheme(() => { if (views.length && views[0].info) refresh(); });
  makeIntro();
  makeLink();
  try {
    setup = await backend.setup(tellLoading);
  } catch (error) {
    complain(error);
    return;
  }
  if (state.model < 0 || state.model >= setup.models.length) state.model = 0;
  if (state.model2 >= setup.models.length) state.model2 = -1;
  if (!setup.what.includes(state.what)) state.what = 'bias';
  if (!state.image && setup.data) state.image = 'data:0';
  by('loading').hidden = true;
  image = new ImageView(imageHandlers);
  makeControls();
  makePictures(backend, setup.data, () => state.image, { choose, upload });
  showModels();
}

begin();
