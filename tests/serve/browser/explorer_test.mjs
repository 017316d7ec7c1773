// The page without a server, from a plain static web server, in a real browser. Screenshots are left in the folder given.
// usage: node explorer_test.mjs PROGRAM FOLDER
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { chromium } from 'playwright-core';
import { driver } from './driver.mjs';
import { checkKeyboard, checkMask, checkPointer, checkTap, makeMaskModel } from './masks.mjs';
import { serve } from './serve.mjs';

const [program, folder] = process.argv.slice(2);
const models = join(dirname(fileURLToPath(import.meta.url)), '../../../models');
const [first, second] = readdirSync(models).filter((file) => file.endsWith('.safetensors')).map((file) => join(models, file));
const site = join(folder, 'site');
const steps = [];
let page;
const { step, view, words, attribute, until, placeOf, image, point, shot, pictureFile, dropFile } =
  driver(() => page, folder, steps);

function run(...values) {
  return spawnSync(program, values, { encoding: 'utf8' });
}

// Python's own server for files, on any free port.
async function staticServer(directory) {
  const server = spawn('python3', ['-u', '-m', 'http.server', '0', '--bind', '127.0.0.1', '--directory', directory]);
  const port = await new Promise((resolve, reject) => {
    server.stdout.on('data', (text) => resolve(/port (\d+)/.exec(text)?.[1]));
    server.on('exit', () => reject(new Error('the static server ended')));
  });
  return { server, address: `http://127.0.0.1:${port}/` };
}

rmSync(site, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
const exported = run('serve', first, '--data', 'shapes', '--images', '12', '--export', site);
assert.equal(exported.status, 0, exported.stderr);
const { server, address } = await staticServer(site);
const native = await serve(program, [first, second], 'shapes');
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] });

async function open(options, hash = '') {
  const context = await browser.newContext(options);
  const opened = await context.newPage();
  opened.on('pageerror', (error) => { throw error; });
  context.on('request', (request) => assert.ok(request.url().startsWith(address) || /^(data|blob):/.test(request.url()),
    `the page asked for ${request.url()}`));
  await opened.goto(address + hash);
  return opened;
}
const laptop = { viewport: { width: 1366, height: 800 }, colorScheme: 'light' };
const shown = () => until(async () => (await attribute('patch')) !== null, 'a map');
// What the page's own back end answers.
const ask = (path) => page.evaluate(async (asked) => (await import('./backend.js')).backend.ask(asked), path);
const askNative = async (path, options) => (await fetch(native.address.replace(/\/$/, '') + path, options)).json();

function expectClose(found, expected, tolerance, name) {
  assert.equal(found.length, expected.length, name);
  const size = Math.max(1, ...expected.map((value) => Math.abs(value ?? 0)));
  found.forEach((value, i) => {
    if (expected[i] === null) assert.equal(value, null, name);
    else assert.ok(Math.abs(value - expected[i]) <= tolerance * size, `${name}: ${value} is not ${expected[i]}`);
  });
}

try {
  await step('the page without models is small', async () => {
    const files = readdirSync(site).filter((name) => name.includes('.'));
    const bytes = files.reduce((sum, name) => sum + gzipSync(readFileSync(join(site, name))).length, 0);
    console.log(`    ${files.length} files, ${(bytes / 1e3).toFixed(0)} kB gzipped`);
    assert.ok(bytes < 1.5e6);
  });

  await step('it opens from a static server and shows the first image', async () => {
    page = await open(laptop);
    await shown();
    assert.equal(await page.locator('.predictions li').count(), 3);
    assert.equal(await page.locator('#thumbs button').count(), 12);
    assert.ok(!(await page.locator('#saving').isVisible()));
    await page.locator('#got-it').click();
    await shot('explorer-laptop', false);
  });

  await step('every quantity is what the server says', async () => {
    const seen = await ask('/api/inspect?model=0&image=data:0'), expected = await askNative('/api/inspect?model=0&image=data:0');
    expectClose(seen.predictions.map((one) => one.probability), expected.predictions.map((one) => one.probability), 1e-4,
      'predictions');
    for (const name of ['rows', 'cols', 'offers', 'subject', 'background', 'label', 'warning']) {
      assert.deepEqual(seen[name], expected[name], name);
    }
    for (const what of ['bias', 'bias-x', 'bias-y', 'gates', 'positions', 'attention']) {
      for (const choice of ['layer=mean&head=mean', 'layer=2&head=1', 'layer=mean&head=2']) {
        const path = `/api/rows?model=0&image=data:0&what=${what}&${choice}&y=2&x=5`;
        const rows = await ask(path), wanted = await askNative(path);
        expectClose(rows.values, wanted.values, 1e-4, path);
        for (const curve of ['along_x', 'along_y']) if (wanted[curve]) expectClose(rows[curve], wanted[curve], 1e-4, path);
        expectClose([rows.low, rows.high], [wanted.low, wanted.high], 1e-4, path);
        assert.equal(rows.kind, wanted.kind);
        const wording = (one) => one.caption.join(' ').replace(/[−\d.e-]+/g, '#');  // the last digit may be another
        assert.equal(wording(rows), wording(wanted));
      }
    }
  });

  // A JPEG too: the browser's decoder and the program's give the same bytes.
  const dropped = [['png', 96, 96], ['jpeg', 96, 96], ['jpeg', 131, 83]];
  for (const [number, [kind, width, height]] of dropped.entries()) {
    await step(`a dropped ${kind} of ${width}×${height} is classified as the program does it`, async () => {
      const picture = await pictureFile(width, height, `image/${kind}`), path = join(folder, `disc.${kind}`);
      writeFileSync(path, picture);
      await dropFile(picture, `disc.${kind}`, `image/${kind}`);
      await until(async () => page.url().includes(`image=own%3A${number}`), 'the image');
      await shown();
      const { predictions } = await ask(`/api/inspect?model=0&image=own:${number}`);
      const { image: kept } = await askNative('/api/images', { method: 'POST', body: picture });
      // `predict` cuts the middle out of an image that is not square; the page and the server show all of it.
      const expected = width === height ? JSON.parse(run('predict', first, path, '--json').stdout)[0].predictions :
        (await askNative(`/api/inspect?model=0&image=${kept}`)).predictions;
      assert.deepEqual(predictions.map((one) => one.class), expected.map((one) => one.class));
      // Logits, as far as probabilities tell them: up to a constant, here that of the best class.
      const logits = (list) => list.map((one) => Math.log(one.probability / list[0].probability));
      const wanted = logits(expected), found = logits(predictions);
      const off = Math.max(...found.map((logit, i) => Math.abs(logit - wanted[i])));
      console.log(`    logits differ by ${off.toExponential(1)}`);
      assert.ok(off <= 1e-4, `a logit is ${off} off`);
      await shot(`explorer-dropped-${kind}-${width}`, false);
    });
  }

  // From the pointer's event to the drawn map, by a clock outside the page's own code.
  async function hoverTimes() {
    await page.evaluate(() => {
      const watched = Boolean(window.hovers);
      window.hovers = [];
      if (watched) return;
      let moved = 0;
      addEventListener('pointermove', (event) => { moved = event.timeStamp; }, { capture: true });
      new MutationObserver(() => window.hovers.push(performance.now() - moved))
        .observe(document.querySelector('.view'), { attributeFilter: ['data-patch'] });
    });
    for (let i = 0; i < 20; i++) {
      const y = (3 * i + 2) % 8, x = (5 * i + 3) % 8;
      await point(y, x);
      await until(async () => (await attribute('patch')) === `${y},${x}`, `the map from ${y},${x}`);
    }
    return (await page.evaluate(() => window.hovers)).sort((a, b) => a - b);
  }

  await step('a hover shows the map from that patch at once', async () => {
    await page.locator('#thumbs button').first().click();
    await until(async () => (await page.evaluate(() => document.body.dataset.grid)) === '8×8', 'an image of 8×8');
    await shown();
    // Tests share their machine: one undisturbed round of several is asked for.
    let middle = Infinity;
    for (let round = 0; round < 10 && !(middle < 16); round++) {
      const times = await hoverTimes();
      assert.ok(times.length >= 20, `${times.length} hovers were seen`);
      middle = times[Math.floor(times.length / 2)];
      console.log(`    a hover on 8×8: ${times[0].toFixed(1)} ms at best, ${middle.toFixed(1)} ms in the middle`);
    }
    assert.ok(middle < 16, `a hover took ${middle} ms`);
  });

  await step('a dropped model stands beside the first', async () => {
    await page.locator('#file').setInputFiles(second);
    await until(async () => await page.locator('.view').count() === 2, 'a second map');
    await until(async () => (await attribute('what', 1)) === 'bias', 'its bias');
    assert.deepEqual(await page.locator('#model option').allTextContents(),
      ['sape2-k+ape', 'sape2-rel-k']);
    assert.match(await words(0).locator('.caption').textContent(), /Far patches gain attention/);
    assert.match(await words(1).locator('.caption').textContent(), /Orange patches gain attention/);
    await page.locator('#thumbs button').nth(3).click();
    await until(async () => page.evaluate(() => document.body.dataset.ready === 'data:3'), 'another image');
    await until(async () => (await attribute('what', 0)) === 'bias' && (await attribute('what', 1)) === 'bias', 'its maps');
    await shot('explorer-compare', false);
    await page.locator('#what input[value="positions"]').check({ force: true });
    await until(async () => (await attribute('what', 1)) === 'positions', 'positions');
    assert.equal(await page.locator('.curves svg').count(), 2);
    await shot('explorer-positions');
    await page.selectOption('#model2', '-1');
  });

  await step('what is no image and no model is refused with a sentence', async () => {
    await dropFile(Buffer.from('this is no image'), 'bad.png', 'image/png');
    await until(async () => (await page.locator('#message').textContent()).includes('no image that this browser can read'), 'a sentence');
    const half = readFileSync(second).subarray(0, 100000);
    await page.locator('#file').setInputFiles({ name: 'half.safetensors', mimeType: '', buffer: half });
    await until(async () => (await page.locator('#message').textContent()).includes('half'), 'a sentence on the model');
    console.log(`    ${await page.locator('#message').textContent()}`);
    await shot('explorer-refused', false);
  });

  await step('the keyboard moves the patch', async () => {
    await page.locator('#what input[value="bias"]').check({ force: true });
    await image().locator('canvas').focus();
    await page.keyboard.press('Home');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('End');
    await until(async () => /,7$/.test(await attribute('patch')), 'the end of a row');
    assert.match(await page.locator('#status').textContent(), /Bias from patch \d,7/);
  });

  await step('a grid of 32×32 stays usable, and says that tables clamp', async () => {
    await page.selectOption('#size', '128');
    await until(async () => (await page.evaluate(() => document.body.dataset.grid)) === '32×32', 'the grid');
    await shown();
    assert.match(await words().locator('.warning').textContent(), /32×32 patches.*trained on 8×8/);
    console.log(`    a row of 32×32: ${await attribute('milliseconds')} ms`);
    await page.context().close();
  });

  await step('without a network it goes on, and opens again', async () => {
    page = await open(laptop);
    await shown();
    await page.evaluate(() => navigator.serviceWorker.ready);
    await page.context().setOffline(true);
    await dropFile(await pictureFile(64, 64), 'offline.png', 'image/png');
    await until(async () => page.url().includes('image=own'), 'an image without a network');
    await shown();
    await page.goto(address);
    await shown();
    await page.locator('#thumbs button').nth(5).click();
    await until(async () => page.url().includes('image=data%3A5'), 'another image');
    await shown();
    await page.context().close();
  });

  for (const colorScheme of ['light', 'dark']) {
    await step(`a phone, ${colorScheme}`, async () => {
      page = await open({ viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true, colorScheme });
      await shown();
      await page.locator('#got-it').tap();
      await page.touchscreen.tap(...await placeOf(image(), 2, 5));
      await until(async () => (await attribute('patch')) === '2,5', 'the tapped patch');
      await page.touchscreen.tap(...await placeOf(view(), 6, 2));
      await until(async () => (await words().locator('.readout').textContent()).includes('6,2 (4 down, 3 left)'),
        'the values of a tapped patch');
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(overflow <= 0, `the page is ${overflow} pixels too wide`);
      await shot(`explorer-phone-${colorScheme}`);
      await page.context().close();
    });
  }

  await step('a model for segmentation shows its mask, which is that of the server', async () => {
    const model = makeMaskModel(program, folder);
    const done = run('serve', model, '--data', 'shapes', '--images', '12', '--export', site);
    assert.equal(done.status, 0, done.stderr);
    const other = await serve(program, [model], 'shapes');
    try {
      page = await open(laptop);
      await shown();
      await page.locator('#got-it').click();
      const seen = await checkMask(page, until);
      const asked = async (path) => (await fetch(other.address.replace(/\/$/, '') + path)).json();
      const wanted = await asked(`/api/mask?model=0&image=${seen.image}`);
      assert.deepEqual(seen.mask.classes.map((one) => [one.class, one.colour]),
        wanted.classes.map((one) => [one.class, one.colour]));
      expectClose(seen.mask.classes.map((one) => one.share), wanted.classes.map((one) => one.share), 2e-3, 'shares');
      const pixel = `/api/pixel?model=0&image=${seen.image}&y=${seen.object.y}&x=${seen.object.x}`;
      const found = await ask(pixel), expected = await asked(pixel);
      expectClose(found.predictions.map((one) => one.probability), expected.predictions.map((one) => one.probability), 1e-4,
        'probabilities');
      await checkPointer(page, until, seen);
      await shot('explorer-mask');
      await checkKeyboard(page, until, seen);
      await page.context().close();
      page = await open({ viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true });
      await shown();
      await page.locator('#got-it').tap();
      await checkTap(page, until);
      await shot('explorer-phone-mask');
      await page.context().close();
    } finally {
      other.server.kill('SIGTERM');
    }
  });

  await step('mistakes of whoever writes the folder are one sentence', async () => {
    const full = run('serve', first, '--export', folder);
    assert.equal(full.status, 1);
    assert.match(full.stderr, /has other things in it; give an empty one/);
    const broken = join(folder, 'broken.safetensors');
    writeFileSync(broken, 'no model');
    assert.equal(run('serve', broken, '--export', site).status, 1);
    assert.ok(readdirSync(join(site, 'models')).length === 1, 'the folder was changed');
    assert.equal(run('serve', first, second, '--data', 'none', '--export', site).status, 0);
    assert.ok(readdirSync(join(site, 'models')).length === 2 && readdirSync(join(site, 'images')).length === 0);
  });

  await step('without images the page asks for one', async () => {
    page = await open(laptop);
    await until(async () => await page.locator('#empty').isVisible(), 'an invitation');
    await shot('explorer-empty', false);
  });
} catch (error) {
  if (page) await shot('explorer-failure').catch(() => {});
  console.error(error);
  process.exitCode = 1;
} finally {
  await browser.close();
  native.server.kill('SIGTERM');
  server.kill('SIGTERM');
}
