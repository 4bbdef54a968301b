#include "cli/bits_options.h"

static const struct option BITS[] = {
    {.name = "master",
        .kind = OPTION_CHOICE,
        .choices = "fp32|split|pure",
        .help = "how weights in bf16 are kept; default fp32, a copy beside them",
        .detail =
            "split: no copy, but their lower 16 bits beside them: the same master values for 2 "
            "bytes of a parameter in place of 4. pure: nothing beside them; updates are rounded "
            "at random, which changes results.",
        .example = "--master split"},
    {.name = "moments",
        .kind = OPTION_CHOICE,
        .choices = "fp32|8bit|fp8",
        .help = "how the optimizer's moments are kept; default fp32",
        .detail = "8bit: codes and a scale for each block of 128; fp8: E4M3 and a scale for each "
                  "tensor of a rank's part. Both change results.",
        .example = "--moments 8bit"},
    {.name = "gradients",
        .kind = OPTION_CHOICE,
        .choices = "fp32|fp8",
        .help = "how reduced gradients wait for the update; default fp32",
        .detail =
            "fp8: a byte each, every tensor with a scale of its own, which changes results. For "
            "zero2, zero3 and hsdp, in steps of one micro step.",
        .example = "--gradients fp8"},
    {.name = "gather-format",
        .kind = OPTION_CHOICE,
        .choices = "plain|int8|fp8",
        .help = "how parameters travel to be used; default plain",
        .detail =
            "int8, fp8 (E4M3): in blocks of 256 with a scale each, half the bytes of bf16 (zero3, "
            "hsdp; others keep them whole). What is trained stays exact; products see rounded "
            "parameters.",
        .example = "--gather-format int8"},
    {.name = "reduce-format",
        .kind = OPTION_CHOICE,
        .choices = "plain|int8|fp8",
        .help = "how gradients travel to be summed; default plain",
        .detail =
            "int8, fp8 (E4M3): in blocks of 256 with a scale each, a quarter of the bytes of fp32. "
            "Sums are made in fp32, of rounded gradients.",
        .example = "--reduce-format int8"},
    {0},
};
const struct option_group BITS_OPTIONS = {"Fewer bits", BITS};
