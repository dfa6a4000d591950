#include "cli/cli.h"

int main(int argc, char** argv) { return tenon::cli::run(argc, argv); }
