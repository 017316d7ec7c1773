// What stands in the header: the explanation, the colours of the page, the link.

const by = (id) => document.getElementById(id);

// Storage may be forbidden; then a choice lasts as long as the page.
function remembered(name) {
  try { return localStorage.getItem(name); } catch { return null; }
}
function remember(name, value) {
  try { localStorage.setItem(name, value); } catch { /* as above */ }
}

// One paragraph for a first visit; whoever has read it finds it behind a button.
export function makeIntro() {
  const show = (shown) => {
    by('intro').hidden = !shown;
    by('about').setAttribute('aria-expanded', String(shown));
    if (!shown) remember('intro', 'seen');
  };
  if (remembered('intro') !== 'seen') show(true);
  by('got-it').addEventListener('click', () => { show(false); by('about').focus(); });
  by('about').addEventListener('click', () => show(by('intro').hidden));
}

export function makeTheme(onChange) {
  const asked = matchMedia('(prefers-color-scheme: dark)');
  let own = remembered('theme');
  const set = (theme) => {
    document.documentElement.dataset.theme = theme;
    by('theme').textContent = theme === 'dark' ? 'Light' : 'Dark';
    onChange();
  };
  set(own || (asked.matches ? 'dark' : 'light'));
  asked.addEventListener('change', () => { if (!own) set(asked.matches ? 'dark' : 'light'); });
  by('theme').addEventListener('click', () => {
    own = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
    remember('theme', own);
    set(own);
  });
}

export function makeLink() {
  by('copy-link').addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      by('copy-link').textContent = 'Copied';
    } catch {
      by('copy-link').textContent = 'It is in the address bar';
    }
    setTimeout(() => { by('copy-link').textContent = 'Copy link'; }, 1600);
  });
}
