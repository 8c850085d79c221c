// SPDX-License-Identifier: Apache-2.0
#include "bench/stream_mix.h"

#include <algorithm>

#include "headrace/error.h"

namespace headrace::bench {
namespace {

using adam::Isa, adam::kTileElems;

const IsaMixes& mixes_of(Isa isa) {
  HEADRACE_CHECK(adam::supported(isa), adam::isa_name(isa));
#ifdef HEADRACE_BENCH_X86
  if (isa == Isa::avx512) return kAvx512Mixes;
  if (isa == Isa::avx2) return kAvx2Mixes;
#endif
  return kScalarMixes;
}

void add(std::vector<StreamMix>& mixes, Isa isa, const char* name, const MixTable& table,
         const adam::Format& format, DType gradient) {
  const ShapedMix& mix = table.of[size_t(format.weights)][size_t(format.moments)][size_t(gradient)];
  if (mix.run) mixes.push_back({std::string(adam::isa_name(isa)) + " " + name, mix.run, mix.bytes});
}

}  // namespace

std::vector<StreamMix> stream_mixes(Isa isa, const adam::Format& format, DType gradient) {
  HEADRACE_CHECK(format.rule == adam::Rule::adamw || format.rule == adam::Rule::adam,
                 "the mixes have both moments");
  const IsaMixes& of_isa = mixes_of(isa);
  std::vector<StreamMix> mixes;
  add(mixes, isa, "lines", of_isa.lines, format, gradient);
  add(mixes, isa, "lines, cached copy", of_isa.lines_cached, format, gradient);
  add(mixes, isa, "blocks", of_isa.blocks, format, gradient);
  add(mixes, isa, "runs", of_isa.runs, format, gradient);
  return mixes;
}

std::vector<StreamMix> stream_mixes(const adam::Format& format, DType gradient) {
  if (!adam::supported(Isa::avx2)) return stream_mixes(Isa::scalar, format, gradient);
  if (!adam::supported(Isa::avx512)) return stream_mixes(Isa::avx2, format, gradient);
  std::vector<StreamMix> mixes = stream_mixes(Isa::avx512, format, gradient);
  add(mixes, Isa::avx2, "lines", mixes_of(Isa::avx2).lines, format, gradient);
  return mixes;
}

void run_mix(MixRun mix, const adam::Format& format, const adam::Span& span, adam::Workers& workers) {
  HEADRACE_CHECK(span.count % kTileElems == 0, "a mix takes whole tiles");
  const size_t tiles = span.count / kTileElems, parts = std::min(tiles, size_t(workers.threads()));
  workers.for_each(parts, [&](size_t k) {
    const size_t begin = tiles * k / parts * kTileElems, end = tiles * (k + 1) / parts * kTileElems;
    mix(span.part(format, begin, end - begin));
  });
}

}  // namespace headrace::bench
