// The pictures of the page in docs/gallery.md.
// usage: node gallery.mjs PROGRAM FOLDER     (CHROMIUM: the browser)
import { join } from 'node:path';
import { chromium } from 'playwright-core';
import { serve } from './serve.mjs';

const [program, folder] = process.argv.slice(2);
const { server, address } = await serve(program, [], 'cifar10');
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] });
try {
  const laptop = await browser.newPage({ viewport: { width: 1366, height: 860 } });
  await laptop.addInitScript(() => localStorage.setItem('intro', 'seen'));
  await laptop.goto(`${address}#image=data:7&model2=1`);
  await laptop.waitForSelector('.view[data-patch] >> nth=1');
  const box = await laptop.locator('.view canvas').first().boundingBox();
  await laptop.mouse.move(box.x + box.width * 5.5 / 8, box.y + box.height * 4.5 / 8);
  await laptop.waitForFunction(() =>
    [...document.querySelectorAll('.readout')].every((one) => one.textContent.includes('Soft position')));
  await laptop.screenshot({ path: join(folder, 'page.png') });

  const phone = await browser.newPage({
    viewport: { width: 390, height: 844 }, deviceScaleFactor: 1.5, isMobile: true, hasTouch: true,
  });
  await phone.goto(`${address}#image=data:7`);
  await phone.waitForSelector('.view[data-patch]');
  await phone.screenshot({ path: join(folder, 'phone.png') });
} finally {
  await browser.close();
  server.kill('SIGTERM');
}
