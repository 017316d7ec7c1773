// What the page shows, kept in the address so that a link leads back to it.

const defaults = {
  image: '', model: 0, model2: -1, what: 'bias', layer: 0, head: 0, size: 0, y: -1, x: -1,
  opacity: 0, safe: false, lines: true, numbers: false,
};

export function readState() {
  const state = { ...defaults };
  const query = new URLSearchParams(location.hash.slice(1));
  for (const [name, value] of query) {
    if (!(name in defaults)) continue;
    const standard = defaults[name];
    if (typeof standard === 'number') {
      if (/^-?\d{1,6}$/.test(value)) state[name] = Number(value);
    } else if (typeof standard === 'boolean') {
      state[name] = value === '1';
    } else {
      state[name] = value.slice(0, 100);
    }
  }
  return state;
}

export function writeState(state) {
  const query = new URLSearchParams();
  for (const [name, standard] of Object.entries(defaults)) {
    const value = state[name];
    if (value !== standard) query.set(name, typeof value === 'boolean' ? (value ? '1' : '0') : value);
  }
  history.replaceState(null, '', '#' + query.toString());
}

// The query of a question to the back end; layers and heads count from 1 there, 0 is the mean.
export function requestQuery(state, model, more = {}) {
  const query = new URLSearchParams({ model, image: state.image, ...more });
  if (state.size) query.set('size', state.size);
  return query.toString();
}

export function viewQuery(state, model, patch, more = {}) {
  return requestQuery(state, model, {
    what: state.what, layer: state.layer || 'mean', head: state.head || 'mean',
    y: patch.y, x: patch.x, ...more,
  });
}
