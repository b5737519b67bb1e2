// Builds the page into one file: the script and the styles are put into index.html, and nothing is left outside.
import { existsSync, readFileSync } from 'node:fs';
import { defineConfig } from 'vite';

const kDataTag = '<script id="rooflm-data" type="application/json"></script>';
const kMostBytes = 2.5e6;

/** Script text that stays inside its element: no end tag, and no comment that would change how the element ends. */
const inScript = (code) => code.replaceAll('</script', '<\\/script').replaceAll('<!--', '<\\!--');

/** What the licences of the packages inside ask to be kept with them, as a comment of the page. */
function notices() {
  const text = (file) => readFileSync(`node_modules/${file}`, 'utf8').trim().replaceAll('--', '- -');
  const version = (name) => JSON.parse(readFileSync(`node_modules/${name}/package.json`, 'utf8')).version;
  return `<!--\nThis page contains\n\necharts ${version('echarts')}, Apache License 2.0\n${text('echarts/NOTICE')}\n\n`
    + `zrender ${version('zrender')}\n${text('zrender/LICENSE')}\n\ntslib ${version('tslib')}\n${text('tslib/LICENSE.txt')}\n-->\n`;
}

function oneFile() {
  return {
    name: 'one-file',
    enforce: 'post',
    generateBundle(_, bundle) {
      const page = bundle['index.html'];
      for (const [name, item] of Object.entries(bundle)) {
        if (item === page) continue;
        if (item.type === 'chunk') {
          page.source = page.source.replace(/<script type="module"[^>]*src="[^"]*"[^>]*><\/script>/,
                                            () => `<script type="module">${inScript(item.code)}</script>`);
        } else if (name.endsWith('.css')) {
          page.source = page.source.replace(/<link rel="stylesheet"[^>]*>/, () => `<style>${item.source}</style>`);
        } else {
          this.error(`${name} would be left outside of the page`);
        }
        delete bundle[name];
      }
      // Readers look for the character set in the first 1,024 bytes.
      page.source = page.source.replace(/<meta charset[^>]*>/, (charset) => `${charset}\n${notices()}`);
      if (/(src|href)="(?!data:|#)/.test(page.source.slice(0, page.source.indexOf('<script type="module">')))) {
        this.error('the page refers to something outside of itself');
      }
      if (page.source.split(kDataTag).length !== 2) this.error('the page must have the place for its data exactly once');
      if (page.source.length > kMostBytes) this.error(`the page has ${page.source.length} bytes, more than ${kMostBytes}`);
    },
  };
}

/** In development the data is sample.json, which `npm run sample` writes. */
function sampleData() {
  return {
    name: 'sample-data',
    apply: 'serve',
    transformIndexHtml(html) {
      if (!existsSync('sample.json')) return html;
      const data = readFileSync('sample.json', 'utf8').replaceAll('</', '<\\/');
      return html.replace(kDataTag, () => kDataTag.replace('></', `>${data}</`));
    },
  };
}

export default defineConfig({
  base: './',
  plugins: [sampleData(), oneFile()],
  build: { target: 'es2022', cssCodeSplit: false, modulePreload: false, assetsInlineLimit: 0, reportCompressedSize: false },
});
