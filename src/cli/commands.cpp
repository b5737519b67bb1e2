// The commands of the binary.
#include "cli/commands.h"

namespace rooflm::cli {

const std::vector<CommandGroup>& command_groups() {
  static const std::vector<CommandGroup> kGroups = {
      {"Measure a step",
       {
           {"bench", "time forward, backward, optimizer and whole steps; sweeps", declare_bench},
           {"profile", "break down one step: phases, blocks, ops, roofline, memory", declare_profile},
           {"study", "run sweeps that answer a question, and show the answer", declare_study},
           {"peaks", "measure this machine's matmul rates and bandwidths", declare_peaks},
           {"attention", "time attention alone: looped, batched, flash; memory", declare_attention},
           {"gemm", "time matmuls: big, looped, batched, as in attention", declare_gemm},
           {"comm", "time collectives between ranks", declare_comm},
       }},
      {"Other programs",
       {
           {"record", "record any CUDA program, PyTorch by modules", declare_record},
           {"import", "turn traces and snapshots of other tools into records", declare_import},
       }},
      {"Look at records",
       {
           {"report", "show run records as tables, charts or a page", declare_report},
           {"view", "open the page of run records in a browser", declare_view},
           {"compare", "say what got faster or slower between records; a CI gate", declare_compare},
           {"verify", "check records: sums, counts, memory, roofs", declare_verify},
           {"export", "write a run in the formats of other tools", declare_export},
       }},
      {"Before a run",
       {
           {"plan", "predict memory, step time, MFU and cost on N devices", declare_plan},
           {"program", "print the ops of a step: shapes, FLOPs, bytes, memory", declare_program},
       }},
      {"Train and serve",
       {
           {"data prepare", "turn text files into token shards and a tokenizer", declare_data_prepare},
           {"data info", "show what a token shard or prepared directory contains", declare_data_info},
           {"data train-tokenizer", "learn a byte-level BPE vocabulary from text",
            declare_data_train_tokenizer},
           {"data tokenize", "convert text to token ids", declare_data_tokenize},
           {"data decode", "convert token ids to text", declare_data_decode},
           {"train", "train a model on token shards, with checkpoints", declare_train},
           {"eval", "compute the loss of a model on token shards", declare_eval},
           {"quantize", "quantize weights to 8 or 4 bits, or prune them 2:4", declare_quantize},
           {"generate", "generate text with a model", declare_generate},
           {"serve", "answer requests over HTTP as OpenAI's API does", declare_serve},
           {"bench-serve", "load-test a server with that API", declare_bench_serve},
           {"launch", "start ranks of a command on this host, one per device", declare_launch},
       }},
      {"This machine and this program",
       {
           {"info", "show the machine, its devices, what is missing and why", declare_info},
           {"completion", "print a completion script for bash, zsh or fish", declare_completion},
           {"man", "write manual pages, one per command", declare_man},
       }},
  };
  return kGroups;
}

const std::vector<Command>& commands() {
  static const std::vector<Command> kCommands = [] {
    std::vector<Command> all;
    for (const CommandGroup& group : command_groups())
      all.insert(all.end(), group.commands.begin(), group.commands.end());
    return all;
  }();
  return kCommands;
}

Body declare(const Command& command, CommandLine& line, CommonOptions& common) {
  Body body = command.declare(line);
  line.add_flag("-q,--quiet", common.quiet, "Print only errors on standard error").group("Messages");
  line.add_flag("-v,--verbose", common.verbose, "Also print where values came from and how long it took")
      .group("Messages");
  return body;
}

}  // namespace rooflm::cli
