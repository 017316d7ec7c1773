// Where images come from: files dropped or chosen, and the data set's.
import { element } from './draw.js';

const by = (id) => document.getElementById(id);

function thumbnails(backend, data, from, current, choose) {
  const count = Math.min(20, data.images);
  const begin = Math.max(0, Math.min(from, data.images - count));
  by('thumbs').replaceChildren(...Array.from({ length: count }, (_, i) => {
    const index = begin + i;
    const button = element('button', {
      type: 'button', 'data-index': index, 'aria-pressed': String(`data:${index}` === current),
    }, element('img', { src: backend.pictureAddress(`data:${index}`), alt: `image ${index}`, loading: 'lazy' }));
    button.addEventListener('click', () => {
      by('index').value = index;
      choose(`data:${index}`);
    });
    return button;
  }));
}

// `data` is the data set or null, `current()` the image on show.
export function makePictures(backend, data, current, { choose, upload }) {
  const drop = by('drop'), file = by('file');
  if (backend.takesModels) {
    file.accept += ',.safetensors';
    by('drop-title').textContent = 'Drop an image or a model here';
    by('drop-hint').textContent =
      'or press to choose a PNG, JPEG or .safetensors file; it does not leave this browser';
  }
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
  if (!data) return;
  by('data').hidden = false;
  by('data-name').textContent = `${data.name}, ${data.split} images`;
  by('index').max = data.images - 1;
  const chosen = /^data:(\d+)$/.exec(current());
  if (chosen) by('index').value = chosen[1];
  const show = (from) => thumbnails(backend, data, from, current(), choose);
  show(chosen ? Number(chosen[1]) : 0);
  by('index').addEventListener('change', () => {
    const index = Math.min(data.images - 1, Math.max(0, Math.floor(Number(by('index').value) || 0)));
    by('index').value = index;
    show(index);
    choose(`data:${index}`);
  });
  by('more').addEventListener('click', () => show(Math.floor(Math.random() * data.images)));
}

