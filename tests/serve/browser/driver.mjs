// The page in a browser, as a test takes hold of it.
import assert from 'node:assert/strict';
import { join } from 'node:path';

// `page()` is the one on show, `folder` gets the screenshots, `steps` the names of what has passed.
export function driver(page, folder, steps) {
  async function step(name, work) {
    const began = Date.now();
    await work();
    steps.push(name);
    console.log(`ok  ${name}  (${Date.now() - began} ms)`);
  }

  const view = (number = 0) => page().locator('.view').nth(number);  // a map
  const words = (number = 0) => page().locator('.words').nth(number);  // what is said of it
  const attribute = (name, number = 0) => view(number).getAttribute(`data-${name}`);
  async function until(question, what) {
    const end = Date.now() + 40000;
    while (!(await question())) {
      assert.ok(Date.now() < end, `waited in vain: ${what}`);
      await page().waitForTimeout(20);
    }
  }
  // The middle of a patch of 8×8, of the image or of a map.
  async function placeOf(panel, y, x) {
    const box = await panel.locator('.canvas-box canvas').boundingBox();
    return [box.x + (x + 0.5) * box.width / 8, box.y + (y + 0.5) * box.height / 8];
  }
  const image = () => page().locator('#image');
  const point = async (y, x) => page().mouse.move(...await placeOf(image(), y, x));
  const press = async (y, x) => page().mouse.click(...await placeOf(image(), y, x));
  const pointAtMap = async (y, x, number = 0) => page().mouse.move(...await placeOf(view(number), y, x));
  const colourAt = (y, x, number = 0) => view(number).locator('.canvas-box canvas').evaluate((canvas, [row, col]) => {
    const at = (place, size) => Math.floor((place + 0.5) * size / 8);
    return [...canvas.getContext('2d').getImageData(at(col, canvas.width), at(row, canvas.height), 1, 1).data];
  }, [y, x]);
  const shot = (name, fullPage = true) => page().screenshot({ path: join(folder, `${name}.png`), fullPage });

  // A picture with a bright disc, written to a file by the browser itself.
  async function pictureFile(width, height, type = 'image/png') {
    const url = await page().evaluate(([w, h, kind]) => {
      const canvas = document.createElement('canvas');
      canvas.width = w;
      canvas.height = h;
      const paint = canvas.getContext('2d');
      const sky = paint.createLinearGradient(0, 0, 0, h);
      sky.addColorStop(0, '#5fa8e8');
      sky.addColorStop(1, '#d9ecd0');
      paint.fillStyle = sky;
      paint.fillRect(0, 0, w, h);
      paint.fillStyle = '#c2410c';
      paint.beginPath();
      paint.arc(w * 0.45, h * 0.55, Math.min(w, h) * 0.28, 0, 7);
      paint.fill();
      return canvas.toDataURL(kind, 0.8);
    }, [width, height, type]);
    return Buffer.from(url.split(',')[1], 'base64');
  }

  async function dropFile(bytes, name, type) {
    const data = await page().evaluateHandle(([content, file, kind]) => {
      const transfer = new DataTransfer();
      transfer.items.add(new File([Uint8Array.from(atob(content), (c) => c.charCodeAt(0))], file, { type: kind }));
      return transfer;
    }, [bytes.toString('base64'), name, type]);
    await page().dispatchEvent('#drop', 'drop', { dataTransfer: data });
  }

  return { step, view, words, attribute, until, placeOf, image, point, press, pointAtMap, colourAt, shot, pictureFile,
    dropFile };
}
