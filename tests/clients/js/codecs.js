"use strict";
// KafkaJS brings gzip alone; the other codecs are added as its users add them.

const snappy = require("kafkajs-snappy");
const lz4 = require("lz4-napi");
const { ZstdCodec } = require("zstd-codec");

let zstd = null;

// WebAssembly is loaded in the background.
const ready = new Promise((resolve) => {
  ZstdCodec.run((module) => {
    zstd = new module.Simple();
    resolve();
  });
});

const codec = (compress, decompress) => () => ({
  compress: async (encoder) => Buffer.from(compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(decompress(buffer)),
});

function install(codecs, types) {
  codecs[types.Snappy] = snappy;
  codecs[types.LZ4] = codec(
    (data) => lz4.compressFrameSync(data),
    (data) => lz4.decompressFrameSync(data),
  );
  codecs[types.ZSTD] = codec(
    (data) => zstd.compress(data),
    (data) => zstd.decompress(data),
  );
}

module.exports = { install, ready };
