// Pages from elsewhere in a real browser: none can read from `sape2 serve`, or send it anything.
// usage: node other_origin_test.mjs PROGRAM
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { chromium } from 'playwright-core';
import { serve } from './serve.mjs';

const { server, address } = await serve(process.argv[2], [], 'shapes');
const port = new URL(address).port;
const empty = '<!doctype html><meta charset="utf-8"><title>elsewhere</title><body></body>';

// Names of the attacker that lead here, as after DNS rebinding.
const names = ['evil.test', '127.0.0.1.evil.test', 'localhost.evil.test'];
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  args: ['--no-sandbox', `--host-resolver-rules=${names.map((name) => `MAP ${name} 127.0.0.1`).join(',')}`,
    // Otherwise the browser itself may ask the user first; here the server's own checks are tried.
    '--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests'],
});

const listening = [];
function elsewhere(host, onPort) {
  return new Promise((resolve, reject) => {
    const other = createServer((request, response) => response.setHeader('Content-Type', 'text/html').end(empty));
    other.on('error', reject);
    other.listen(onPort, host, () => {
      listening.push(other);
      resolve(`http://${host.includes(':') ? `[${host}]` : host}:${other.address().port}/`);
    });
  });
}

// Everything a page can try to get at `target`; the words that each attempt ends with.
function attempts(target) {
  const outcome = (work) => work().then((value) => `got ${value}`, (error) => `failed: ${error.name || 'error'}`);
  const loaded = (element, name, value) => new Promise((resolve, reject) => {
    element.onload = () => resolve('loaded');
    element.onerror = () => reject(new Error('refused'));
    element[name] = value;
    document.body.append(element);
  });
  const upload = new Blob(['no image']);
  const body = { method: 'POST', body: upload };
  return Promise.all([
    ['read', () => fetch(target + 'api/setup').then((answer) => answer.text())],
    ['read the page', () => fetch(target).then((answer) => answer.text())],
    ['read blindly', () => fetch(target + 'api/setup', { mode: 'no-cors' }).then((answer) => answer.type)],
    ['post', () => fetch(target + 'api/images', body).then((answer) => answer.text())],
    ['post blindly', () => fetch(target + 'api/images', { ...body, mode: 'no-cors' }).then((answer) => answer.type)],
    ['post as JSON', () => fetch(target + 'api/images',
      { ...body, headers: { 'Content-Type': 'application/json' } }).then((answer) => answer.text())],
    ['image', () => loaded(document.createElement('img'), 'src', target + 'api/picture?image=data:0')],
    ['script', () => loaded(document.createElement('script'), 'src', target + 'app.js')],
    ['beacon', async () => navigator.sendBeacon(target + 'api/images', upload)],
  ].map(async ([name, work]) => [name, await outcome(work)])).then(Object.fromEntries);
}

// A page, and what servers say to it: [address, status], from the network itself, as the browser hides from
// pages and their tools what they may not see.
async function visit(from, route) {
  const context = await browser.newContext();
  const page = await context.newPage();
  if (route) await page.route((url) => url.href === from, (asked) => asked.fulfill({ contentType: 'text/html', body: empty }));
  await page.goto(from);
  const asked = new Map(), statuses = new Map();  // by request; either may come first
  const network = await context.newCDPSession(page);
  network.on('Network.requestWillBeSent', ({ requestId, request }) => {
    if (request.method !== 'OPTIONS') asked.set(requestId, request.url);
  });
  network.on('Network.responseReceivedExtraInfo', ({ requestId, statusCode }) => statuses.set(requestId, statusCode));
  const said = () => [...asked].filter(([id]) => statuses.has(id)).map(([id, url]) => [url, statuses.get(id)]);
  await network.send('Network.enable');
  return { context, page, said };
}

// Every attempt fails for the page, and the server has refused those that reached it.
async function check(name, outcomes, answers, failed) {
  const silent = ['read blindly', 'post blindly', 'beacon'];  // a page learns nothing from these
  for (const [attempt, outcome] of Object.entries(outcomes)) {
    if (!silent.includes(attempt)) assert.ok(failed(outcome), `${name}, ${attempt}: ${outcome}`);
  }
  const enough = 7;  // all but the one that the browser asks leave for first, and perhaps the beacon
  for (let i = 0; i < 100 && answers().length < enough; ++i) await new Promise((go) => setTimeout(go, 50));
  for (const [url, status] of answers()) assert.equal(status, 403, `${name}: ${url} was answered`);
  assert.ok(answers().length >= enough, `${name}: only ${answers().length} requests reached the server`);
  assert.ok(answers().filter(([url]) => url.endsWith('/api/images')).length >= 2, `${name}: no post was tried`);
}

let number = 0;
async function step(name, work) {
  await work();
  console.log(`ok ${++number}  ${name}`);
}

try {
  // So that the attempts below are known to be able to succeed.
  await step('the page itself can read and post', async () => {
    const { context, page, said } = await visit(address);
    const outcomes = await page.evaluate(attempts, address);
    for (const [attempt, outcome] of Object.entries(outcomes)) {
      assert.match(outcome, /^got/, `${attempt}: ${outcome}`);
    }
    assert.match(outcomes.read, /"models"/);
    assert.match(outcomes.post, /neither PNG nor JPEG/);
    assert.ok(said().every(([, status]) => status !== 403), JSON.stringify(said()));
    await context.close();
  });

  const others = [['another port', '127.0.0.1', 0], ['another loopback address, the same port', '127.0.0.2', Number(port)],
    ['the IPv6 loopback address, the same port', '::1', Number(port)]];
  for (const [name, host, onPort] of others) {
    let from;
    try {
      from = await elsewhere(host, onPort);
    } catch (error) {
      console.log(`--  ${name}: cannot be had here (${error.code})`);
      continue;
    }
    await step(`a page from ${name} can neither read nor post`, async () => {
      const { context, page, said } = await visit(from);
      const outcomes = await page.evaluate(attempts, address);
      await check(name, outcomes, () => said().filter(([url]) => url.startsWith(address)),
        (outcome) => outcome.startsWith('failed'));
      await context.close();
    });
  }

  // The browser takes it for the same site, so the page may read: what it reads is a refusal.
  for (const name of names) {
    await step(`${name}, which was made to lead here, gets refusals only`, async () => {
      const from = `http://${name}:${port}/`;
      const { context, page, said } = await visit(from, true);
      const outcomes = await page.evaluate(attempts, from);
      delete outcomes['read the page'];  // that is the attacker's own
      await check(name, outcomes, () => said().filter(([url]) => url !== from),
        (outcome) => /by its own address only|^failed/.test(outcome));
      await context.close();
    });
  }

  await step('a page from elsewhere cannot frame the page, post a form to it, or hold on to it', async () => {
    const from = await elsewhere('127.0.0.1', 0);
    const { context, page, said } = await visit(from);
    await page.evaluate((target) => {
      const frame = document.createElement('iframe');
      frame.src = target;
      document.body.append(frame);
      return new Promise((resolve) => { frame.onload = resolve; });
    }, address);
    assert.deepEqual(said().filter(([url]) => url === address), [[address, 403]]);
    const [opened] = await Promise.all([context.waitForEvent('page'), page.evaluate((target) => {
      window.other = window.open(target);
    }, address)]);
    await opened.waitForLoadState();
    assert.match(await opened.title(), /SaPE/);  // a link to the page may be followed
    assert.equal(await page.evaluate(() => window.other.closed), true);  // and that is all: no hold of it
    assert.equal(await opened.evaluate(() => window.opener), null);
    const [answer] = await Promise.all([page.waitForNavigation(), page.evaluate((target) => {
      const form = document.createElement('form');
      form.method = 'POST';
      form.action = target + 'api/images';
      document.body.append(form);
      form.submit();
    }, address)]);
    assert.equal(answer.status(), 403);
    await context.close();
  });
} catch (error) {
  console.error(error);
  process.exitCode = 1;
} finally {
  await browser.close();
  for (const other of listening) other.close();
  const ended = new Promise((resolve) => server.on('exit', resolve));
  server.kill('SIGTERM');
  await ended;
}
