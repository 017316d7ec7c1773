// `sape2 serve` as a process on any free port.
import { spawn } from 'node:child_process';

export async function serve(program, models, data) {
  const server = spawn(program, ['serve', ...models, '--data', data, '--port', '0']);
  let words = '';
  const address = await new Promise((resolve, reject) => {
    const add = (text) => {
      words += text;
      const found = /http:\/\/[^\s]+/.exec(words);
      if (found) resolve(found[0]);
    };
    server.stdout.on('data', add);
    server.stderr.on('data', add);
    server.on('exit', () => reject(new Error('the server ended: ' + words)));
  });
  return { server, address };
}
