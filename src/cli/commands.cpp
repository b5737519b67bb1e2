// The commands of the binary.
#include "cli/commands.h"

namespace rooflm::cli {

const std::vector<Command>& commands() {
  static const std::vector<Command> kCommands = {
      {"bench", "time forward, backward, optimizer and the whole step; sweeps", declare_bench},
      {"profile", "take one step apart: phases, blocks, ops, roofline, memory", declare_profile},
      {"study", "sweeps with a question, and the views that answer it", declare_study},
      {"record", "any CUDA program from outside: kernels, copies, ranges, modules of PyTorch",
       declare_record},
      {"report", "tables, charts and the page of run records", declare_report},
      {"export", "a run in the formats of other tools: traces, CSV, SQLite, flame graphs", declare_export},
      {"import", "traces and snapshots of other tools as run records", declare_import},
      {"verify", "hold run records against themselves: sums, counts, memory, roofs", declare_verify},
      {"compare", "two records: what got faster or slower, with significance; a gate for CI",
       declare_compare},
      {"plan", "predict memory, step time, MFU, days and money of a run on N devices", declare_plan},
      {"program", "print the ops of a step: shapes, FLOPs, bytes, memory", declare_program},
      {"launch",
       "several ranks of bench, profile, train, eval, generate or comm on this host, one for each device",
       declare_launch},
      {"train", "train a model on token shards, with checkpoints", declare_train},
      {"eval", "the loss of a model on token shards", declare_eval},
      {"generate", "text from a model", declare_generate},
      {"peaks", "measure this machine's ceilings: matrix products, memory bandwidth", declare_peaks},
      {"attention", "time attention alone: looped, batched and flash; forward, backward, memory",
       declare_attention},
      {"gemm", "time matrix products: one big one, looped, batched; shapes of attention", declare_gemm},
      {"comm", "time what ranks send each other: all_reduce, all_gather, reduce_scatter, messages",
       declare_comm},
      {"data prepare", "text files to token shards and a tokenizer", declare_data_prepare},
      {"data info", "what a token shard or a prepared directory holds", declare_data_info},
      {"data train-tokenizer", "learn a byte-level BPE vocabulary from text", declare_data_train_tokenizer},
      {"data tokenize", "text to token ids", declare_data_tokenize},
      {"data decode", "token ids back to text", declare_data_decode},
      {"info", "the machine, the devices, what is available here and why not", declare_info},
      {"completion", "what bash, zsh or fish needs to complete commands, options and values",
       declare_completion},
      {"man", "manual pages, one for each command", declare_man},
  };
  return kCommands;
}

Body declare(const Command& command, CommandLine& line, CommonOptions& common) {
  Body body = command.declare(line);
  line.add_flag("-q,--quiet", common.quiet, "Say nothing on standard error but errors").group("Messages");
  line.add_flag("-v,--verbose", common.verbose, "Say also where values came from, and how long it took")
      .group("Messages");
  return body;
}

}  // namespace rooflm::cli
