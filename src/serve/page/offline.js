// Keeps the page's files, so that it also opens without a network. What the network has comes first.
const name = 'sape2-explorer';

addEventListener('install', (event) => {
  event.waitUntil((async () => {
    const { files } = await (await fetch('explorer.json')).json();
    await (await caches.open(name)).addAll(files);
    await skipWaiting();
  })());
});

addEventListener('activate', (event) => event.waitUntil(clients.claim()));

addEventListener('fetch', (event) => {
  if (event.request.method !== 'GET' || !event.request.url.startsWith(registration.scope)) return;
  event.respondWith((async () => {
    const kept = await caches.open(name);
    try {
      const response = await fetch(event.request);
      if (response.ok) await kept.put(event.request, response.clone());
      return response;
    } catch (error) {
      const known = await kept.match(event.request, { ignoreSearch: true });
      if (known) return known;
      throw error;
    }
  })());
});
