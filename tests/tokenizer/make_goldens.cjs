// Writes goldens.json: texts and their token ids from OpenAI's tiktoken (its own Rust code, compiled to WebAssembly).
// Run after `npm ci --prefix tests/tokenizer`:  node tests/tokenizer/make_goldens.cjs
'use strict';
const fs = require('fs');
const path = require('path');
const {get_encoding, Tiktoken} = require('tiktoken');
const {encode: encodeByGpt3Encoder} = require('gpt-3-encoder');

const kLlama3Pattern = String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|` +
    String.raw` ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`;

const texts = [
  'Hello world', ' Hello world', 'Hello, my dog is cute', 'The quick brown fox jumps over the lazy dog.',
  "I'm sure they'll say it's what we've got, isn't it? He'd know; you're right.",
  "I'M SURE THEY'LL SAY IT'S WHAT WE'VE GOT, ISN'T IT?", "'s 't 're 've 'm 'll 'd", "don''t ' s 'sa 'rea 'v 'l", "''''s",
  '😀', 'hi 👋🏽 there', '👨‍👩‍👧‍👦 family', '🏳️‍🌈🇩🇪', 'a😀b 😀😀  😀', '日本語のテキスト', '中文文本，没有空格。', ' 한국어 텍스트',
  'Привет, мир!', 'שלום עולם', 'مرحبا بالعالم ١٢٣', 'हिन्दी पाठ', 'ไทย', 'naïve café ÀÉÎÕÜ ß', 'e\u0301 a\u0308',
  '\u0001\u0002\u0003', 'a\u0000b', '\u007f\u0080\u009f', 'bell\u0007 esc\u001b[31m red', '\u001c\u001d\u001e\u001f x',
  '0123456789'.repeat(6), '1 12 123 1234 12345 123456 1234567', '3.14159265358979', '1,000,000.00', '½ ² ⅷ ٣ ৪',
  '', ' ', '  ', '   a', 'a ', 'a  ', 'a   b', '\n', '\n\n', 'a\n', 'a\nb', 'a\n\n\nb', '\t\tx', ' \n x', 'x \n \n y', '\r\n\r\na',
  'a\u00a0b', 'a\u00a0\u00a0b', '\u3000全角\u3000\u3000スペース', 'a\u2003\u2003b', 'a\u2028b\u2029c', 'x\u0085y', 'a\u1680b \u202f\u205f c',
  'mongolian\u180evowel separator', 'zero\u200bwidth\ufeff', '\ufeffBOM at the start',
  'def f(x):\n    return x**2  # squared\n\n\nprint(f(3))\n', 'if (a && b) { c->d[i++] != 0x7F; }', 'https://example.org/a?b=c&d=%20',
  '<|endoftext|>', 'end<|endoftext|>start', '!!!???...---___===', '$100 €50 £20 ¥5', 'a'.repeat(100), ' '.repeat(50) + 'x',
  'snake_case camelCase kebab-case SCREAMING_CASE', 'Supercalifragilisticexpialidocious antidisestablishmentarianism',
  'The 1990s were 10x better than the 80\'s', "l'été d'or qu'il", '𝕳𝖊𝖑𝖑𝖔 𝟙𝟚𝟛', '\u{10ffff}\u{e000}',
];

/// Seeded texts from awkward pieces (numerical recipes' generator), of characters that Unicode 14 knows.
function makeRandomTexts(count) {
  let state = 20240520;
  const below = (n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor(state / 4294967296 * n);
  };
  const pieces = ['the', ' cat', 'ing', "'s", "'LL", "'re", "'", ' ', '  ', '\n', '\t', '\r\n', '12', '7', ' 2024', 'é', 'ß', '日本', ' 語', '😀',
    '\u200d', '\ufe0f', '\u3000', '\u00a0', '\u2003', '\u0085', '\u180e', '\u0301', '٣', '½', 'ſ', '.', '!!', '--', '(', '\u0001', '\u007f', 'Ω', ' я', '\ufeff'];
  return Array.from({length: count}, () => {
    let text = '';
    for (let n = 1 + below(14); n > 0; --n) text += pieces[below(pieces.length)];
    return text;
  });
}

function main() {
  const gpt2 = get_encoding('gpt2');
  const ranks = require('tiktoken/encoders/gpt2.json').bpe_ranks;
  const llama3 = new Tiktoken(ranks, {}, kLlama3Pattern);
  const cases = texts.concat(makeRandomTexts(300)).map((text) => {
    const ids = Array.from(gpt2.encode_ordinary(text));
    // A second opinion, except where JavaScript's \s differs from Python's: it has U+FEFF and lacks U+0085.
    if (!/[\ufeff\u0085]/.test(text) && encodeByGpt3Encoder(text).join() !== ids.join()) {
      throw new Error('tiktoken and gpt-3-encoder disagree on ' + JSON.stringify(text));
    }
    return {text, gpt2: ids, llama3_pattern: Array.from(llama3.encode_ordinary(text))};
  });
  const json = '{\n"source": "tiktoken 1.0.22, encoding gpt2; llama3_pattern: GPT-2\'s merges with Llama 3\'s pattern",\n"cases": [\n' +
      cases.map((c) => JSON.stringify(c)).join(',\n') + '\n]\n}\n';
  fs.writeFileSync(path.join(__dirname, 'goldens.json'), json);
}

main();
