// What the page shows of a model for segmentation, whoever answers it.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import { join } from 'node:path';

// A model that has learnt a little, so that its masks have two classes.
export function makeMaskModel(program, folder) {
  const run = join(folder, 'masks');
  rmSync(run, { recursive: true, force: true });
  const done = spawnSync(program, ['train', '--task', 'segmentation', '--data', 'shapes', '--train-images', '600',
    '--test-images', '32', '--epochs', '8', '--batch-size', '50', '--model', 'vit-micro', '--depth', '2',
    '--encoding', 'sape2-k+ape', '--out', run], { encoding: 'utf8' });
  assert.equal(done.status, 0, done.stderr);
  return run;
}

const canvasOf = (page) => page.locator('.mask canvas');
const ask = (page, path) => page.evaluate(async (asked) => (await import('./backend.js')).backend.ask(asked), path);

function unpacked(mask) {
  const pixels = [];
  for (let i = 0; i < mask.runs.length; i += 2) pixels.push(...Array(mask.runs[i + 1]).fill(mask.runs[i]));
  return pixels;
}

// A pixel of that class inside a patch and away from other classes, or nothing.
function placeInside(mask, number) {
  const pixels = unpacked(mask), at = (y, x) => pixels[y * mask.width + x];
  for (let y = 2; y < mask.height; y += 4) {
    for (let x = 2; x < mask.width; x += 4) {
      if ([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]].every(([down, right]) => at(y + down, x + right) === number)) return { y, x };
    }
  }
  return null;
}

async function pointOf(page, mask, { y, x }) {
  await canvasOf(page).scrollIntoViewIfNeeded();
  const box = await canvasOf(page).boundingBox();
  return [box.x + (x + 0.5) * box.width / mask.width, box.y + (y + 0.5) * box.height / mask.height];
}

const colourAt = (canvas, mask, place) => canvas.evaluate((node, [y, x, height, width]) =>
  [...node.getContext('2d').getImageData((x + 0.5) * node.width / width, (y + 0.5) * node.height / height, 1, 1).data].slice(0, 3),
[place.y, place.x, mask.height, mask.width]);

// The first image whose mask has both classes is chosen; the model is number 0.
export async function checkMask(page, until) {
  let mask = null, object = null, background = null, number = 0;
  for (; number < 12 && !object; number++) {
    mask = await ask(page, `/api/mask?model=0&image=data:${number}`);
    object = placeInside(mask, 1);
    background = placeInside(mask, 0);
  }
  assert.ok(object && background, 'no image has both classes');
  await page.locator('#thumbs button').nth(number - 1).click();
  await until(async () => (await page.evaluate(() => document.body.dataset.ready)) === `data:${number - 1}`, 'the image');
  await until(async () => (await page.locator('.view').getAttribute('data-patch')) !== null, 'its map');

  assert.equal(await page.locator('.predictions').count(), 0, 'a list of classes of the image');
  const boxes = await Promise.all(['#image', '.view', '.panel:has(.mask)'].map((one) =>
    page.locator(one).locator('canvas').first().boundingBox()));
  boxes.slice(1).forEach((box, i) => assert.ok(box.x >= boxes[i].x + boxes[i].width && Math.abs(box.y - boxes[i].y) < 2 &&
    Math.abs(box.width - boxes[i].width) < 2, 'image, map and mask do not stand side by side'));
  const shares = [...mask.classes].sort((a, b) => b.share - a.share).map((one) => `${one.class}${(100 * one.share).toFixed(1)} %`);
  assert.deepEqual(await page.locator('.classes li').allTextContents(), shares);
  assert.equal(mask.classes.map((one) => one.class).join(), 'background,object');

  // The background stays as it is, the object has its colour over it.
  await page.locator('#lines').uncheck();
  const image = page.locator('#image canvas');
  assert.deepEqual(await colourAt(canvasOf(page), mask, background), await colourAt(image, mask, background));
  const bare = await colourAt(image, mask, object), covered = await colourAt(canvasOf(page), mask, object);
  covered.forEach((value, i) => {
    const expected = 0.56 * bare[i] + 0.44 * mask.classes[1].colour[i];
    assert.ok(Math.abs(value - expected) < 4, `${covered} is not ${mask.classes[1].colour} over ${bare}`);
  });
  await page.locator('#lines').check();
  return { mask, object, background, image: `data:${number - 1}` };
}

export async function checkPointer(page, until, { mask, object, background, image }) {
  const reading = () => page.locator('.reading').textContent();
  for (const [place, name] of [[object, 'object'], [background, 'background']]) {
    await page.mouse.move(...await pointOf(page, mask, place));
    await until(async () => (await reading()).startsWith(`Pixel ${place.y},${place.x}: ${name} `), `the class of ${name}`);
    const { predictions } = await ask(page, `/api/pixel?model=0&image=${image}&y=${place.y}&x=${place.x}`);
    const percent = `${name} ${(100 * predictions[0].probability).toFixed(1)} %`;
    assert.equal(await page.locator('.mask .tip').textContent(), percent);
    assert.ok(Math.abs(predictions.reduce((sum, one) => sum + one.probability, 0) - 1) < 1e-6);
    assert.match(await page.locator('.classes li.here').textContent(), new RegExp(`^${name}`));
    assert.equal(await page.locator('#status').textContent(), await reading());
  }
}

export async function checkKeyboard(page, until, { background }) {
  const reading = () => page.locator('.reading').textContent();
  const at = async (y, x, what) => until(async () => (await reading()).startsWith(`Pixel ${y},${x}: `), what);
  await page.mouse.move(2, 2);
  await canvasOf(page).focus();
  await page.keyboard.press('Home');
  await at(background.y, 0, 'the start of the row');
  await page.keyboard.press('ArrowRight');
  await at(background.y, 4, 'the next patch');
  await page.keyboard.press('End');
  await at(background.y, 31, 'the end of the row');
  await page.keyboard.press('Escape');
  assert.equal(await reading(), '');
  assert.ok(!(await page.locator('.mask .tip').isVisible()));
}

export async function checkTap(page, until) {
  await canvasOf(page).scrollIntoViewIfNeeded();
  const box = await canvasOf(page).boundingBox();
  await page.touchscreen.tap(box.x + box.width / 2, box.y + box.height / 2);
  await until(async () => /^Pixel 1[56],1[56]: (object|background) \d/.test(await page.locator('.reading').textContent()),
    'the class of the tapped pixel');
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(overflow <= 0, `the page is ${overflow} pixels too wide`);
}
