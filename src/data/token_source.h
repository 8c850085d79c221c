// SPDX-License-Identifier: Apache-2.0
// Token files, memory-mapped and read only: byte-level text, llm.c shards (20240520/v1 uint16, 20240801/v7
// uint32) and headerless raw tokens. Windows of seq_len tokens at stride seq_len inside each file; the last
// target of a window is the next window's first token. Thread safety: const after open().
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/batch.h"

namespace headrace {

enum class TokenFormat : uint8_t { text, llmc, raw };
enum class TokenWidth : uint8_t { u16, u32 };  ///< of raw files

struct DataFiles {
  std::vector<std::string> paths;
  TokenFormat format = TokenFormat::text;
  TokenWidth raw_width = TokenWidth::u16;
  std::string key = "data.train";  ///< of the configuration, named by errors
};

class TokenSource {
 public:
  /// Throws IoError (naming key and file), CorruptData (bad header or size, naming the file) or ConfigError
  /// (files.key) when no file holds seq_len + 1 tokens: the message says how many are needed.
  static std::unique_ptr<TokenSource> open(const DataFiles& files, int64_t seq_len, int64_t vocab);
  virtual ~TokenSource() = default;

  [[nodiscard]] virtual uint64_t token_count() const = 0;
  [[nodiscard]] virtual uint64_t window_count() const = 0;
  /// Files too short for a single window: they give nothing.
  [[nodiscard]] virtual uint64_t skipped_files() const { return 0; }
  /// Names, sizes, token counts and format: equal for the same data, whatever the folder.
  [[nodiscard]] virtual std::string fingerprint() const = 0;
  /// Row `row` of `batch` (seq = seq_len) becomes window `window`. A token >= vocab throws CorruptData with
  /// file and position; so does a file that has been cut since it was opened.
  virtual void read_window(uint64_t window, Batch& batch, int64_t row) const = 0;
};

/// Position in the endless sequence of windows; saved and restored exactly.
struct DataPosition {
  uint64_t epoch = 0;
  uint64_t window = 0;  ///< windows of this epoch already taken, over all ranks
  bool operator==(const DataPosition&) const = default;
};

/// The window at place `index` of an epoch: a permutation that is a function of (seed, epoch, window_count)
/// only. Computed place by place, without a table: an 8-round Feistel network over the next power of four
/// (256 at least) that is followed along its cycle until it is in range again. Part of the saved position's
/// meaning: changing it changes what a resumed run reads.
uint64_t shuffled_window(uint64_t seed, uint64_t epoch, uint64_t window_count, uint64_t index);

/// Hands out windows in epoch order, one thread. With several ranks, one global micro-batch takes world_size
/// * rows consecutive places and rank r the r-th run of `rows`, so that the global order does not depend on
/// the world size.
class WindowLoader {
 public:
  WindowLoader(const TokenSource& source, uint64_t seed, int rank, int world_size);
  /// Fills up to batch.batch rows; the last micro-batch of an epoch may be short: its missing rows are
  /// padding without labels. Returns false (and takes nothing) when the epoch is exhausted and
  /// `stop_at_epoch` is set.
  bool next(Batch& batch, bool stop_at_epoch = false);
  [[nodiscard]] DataPosition position() const;
  /// Throws ConfigError ("data.seq_len") when the epoch has fewer windows.
  void seek(const DataPosition& position);

 private:
  const TokenSource& source_;
  uint64_t seed_;
  int rank_, world_size_;
  DataPosition position_;
};

}  // namespace headrace
