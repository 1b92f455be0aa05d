// The two sides of each workload. progress_bench.cc says what they do.
#pragma once

#include "run.h"

namespace progress {

// By hand of memory, no completion queue in the way.
void write_latency_client(const Run& run, unsigned posts);
void write_latency_server(const Run& run, unsigned posts);
// `wait` is a Wait.
void send_latency_client(const Run& run, unsigned wait);
void send_latency_server(const Run& run, unsigned wait);

void readers_client(const Run& run, unsigned readers);
void readers_server(const Run& run, unsigned readers);

void many_writes_client(const Run& run, unsigned links);
void many_writes_server(const Run& run, unsigned links);
void many_sends_client(const Run& run, unsigned links);
void many_sends_server(const Run& run, unsigned links);

void threads_client(const Run& run, unsigned depth);
void threads_server(const Run& run, unsigned depth);

enum Beside : unsigned { kAlone, kOwnChannels, kOneChannel };
void beside_client(const Run& run, unsigned beside);
void beside_server(const Run& run, unsigned beside);

void small_read_client(const Run& run, unsigned unused);
void small_read_server(const Run& run, unsigned unused);

void setup_client(const Run& run, unsigned unused);
void setup_server(const Run& run, unsigned unused);

}  // namespace progress
