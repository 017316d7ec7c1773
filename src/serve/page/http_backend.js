// The page's questions go to the server that it came from.

class HttpBackend {
  takesModels = false;
  hasFigures = true;

  // What the page begins with.
  setup() {
    return this.ask('/api/setup');
  }

  // JSON from an address of the API; an Error with the server's sentence otherwise.
  async ask(path, options) {
    let response;
    try {
      response = await fetch(path, options);
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new Error('The server does not answer; is it still running?');
    }
    const body = await response.json().catch(() => ({}));
    if (!response.ok) throw new Error(body.error || 'The server refused the request.');
    return body;
  }

  // Keeps an image file and says its name from now on.
  async addImage(file) {
    return (await this.ask('/api/images', { method: 'POST', body: file })).image;
  }

  // Where an image can be had as a picture.
  pictureAddress(name) {
    return '/api/picture?' + new URLSearchParams({ image: name });
  }

  figureAddress(query) {
    return '/api/figure?' + query;
  }
}

export const backend = new HttpBackend();
