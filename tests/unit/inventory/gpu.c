#include "inventory/gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MIB (1LL << 20)
#define GB  1000000000LL

/* Names as providers, drivers and people write them, and what they mean (provider documentation
 * and nvidia-smi output). */
static void knows_the_names_sellers_use(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t memory;
        const char *id;
    } CASES[] = {
        {"NVIDIA H100 80GB HBM3", 0, "h100-sxm"},
        {"NVIDIA H100 80GB HBM3", 81559 * MIB, "h100-sxm"},
        {"H100-SXM5", 0, "h100-sxm"},
        {"h100_sxm5", 0, "h100-sxm"},
        {"H100 PCIe", 80 * GB, "h100-pcie"},
        {"NVIDIA H100 NVL", 95830 * MIB, "h100-nvl"},
        {"H100", 94 * GB, "h100-nvl"},
        {"H100-80GB", 0, "h100-sxm"},
        {"A100 SXM4 80GB", 80 * GB, "a100-80-sxm"},
        {"A100-SXM4-40GB", 0, "a100-40-sxm"},
        {"NVIDIA A100-SXM4-80GB", 81920 * MIB, "a100-80-sxm"},
        {"A100", 0, "a100-40-sxm"},
        {"A100", 80 * GB, "a100-80-sxm"},
        {"A100 PCIe", 40 * GB, "a100-40-pcie"},
        {"NVIDIA A100 80GB PCIe", 0, "a100-80-pcie"},
        {"V100", 32 * GB, "v100-32"},
        {"Tesla V100-SXM2-32GB", 0, "v100-32"},
        {"NVIDIA GeForce RTX 4090", 24564 * MIB, "rtx4090"},
        {"geforcertx4090-pcie-24gb", 0, "rtx4090"},
        {"NVIDIA H200", 143771 * MIB, "h200-sxm"},
        {"NVIDIA B200", 183359 * MIB, "b200"},
        {"B300", 288 * GB, "b300"},
        {"Tesla T4", 0, "t4"},
        {"NVIDIA RTX PRO 6000 Blackwell Server Edition", 0, "rtxpro6000"},
        {"AMD Instinct MI300X", 0, "mi300x"},
        {"GH200 480GB", 0, "gh200-96"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        const struct gpu *g = gpu_find(CASES[i].name, CASES[i].memory);
        if (!g)
            fail_msg("'%s' was not found", CASES[i].name);
        assert_string_equal(g->id, CASES[i].id);
    }
}

static void does_not_guess_at_names_it_does_not_know(void **state)
{
    (void)state;
    static const char *const NAMES[] = {
        "", "H1000", "TPU v5", "100", "nvidia", "80GB", "Gaudi 3", "-"};
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++)
        assert_null(gpu_find(NAMES[i], 0));
    assert_string_equal(gpu_nearest("h100-smx"), "h100-sxm");
    assert_null(gpu_nearest("something completely different"));
}

static void keeps_the_model_when_the_memory_fits_no_variant(void **state)
{
    (void)state;
    assert_string_equal(gpu_find("h100-sxm", 12 * GB)->id, "h100-sxm");
}

static void knows_a_slice_from_a_whole_gpu(void **state)
{
    (void)state;
    assert_true(gpu_is_slice("NVIDIA H100 80GB HBM3 MIG 1g.10gb"));
    assert_false(gpu_is_slice("NVIDIA H100 80GB HBM3"));
}

/* Figures from the vendors' data sheets and from nvidia-smi, typed here by hand. */
static void figures_are_in_base_units(void **state)
{
    (void)state;
    const struct gpu *h = gpu_find("h100-sxm", 0);
    assert_true(h->memory_bytes == 81559 * MIB);
    assert_float_equal(h->memory_bytes_per_s / 1e12, 3.35, 1e-9);
    assert_float_equal(h->bf16_flops_per_s / 1e12, 989, 1e-9);
    assert_float_equal(h->bf16_measured_flops_per_s / 1e12, 794.5, 1e-9);
    assert_float_equal(h->link_bytes_per_s / 1e9, 450, 1e-9);
    assert_int_equal(h->link_scope, GPU_LINK_ALL);
    assert_float_equal(h->capability, 9.0, 1e-9);
    const struct gpu *t4 = gpu_find("t4", 0);
    assert_float_equal(t4->bf16_flops_per_s, 0, 1e-9);
    assert_float_equal(t4->fp16_flops_per_s / 1e12, 65, 1e-9);
    assert_int_equal(t4->link_scope, GPU_LINK_NONE);
    assert_string_equal(gpu_find("gb200", 0)->host_arch, "arm64");
}

static void every_model_is_sane_and_found_by_each_of_its_names(void **state)
{
    (void)state;
    assert_int_equal(gpu_count(), 42);
    for (size_t i = 0; i < gpu_count(); i++) {
        const struct gpu *g = gpu_at(i);
        assert_ptr_equal(gpu_find(g->id, 0), g);
        assert_true(g->memory_bytes >= 0 && g->memory_bytes < 512LL << 30);
        if (g->memory_bytes && g->memory_gb_sold > 0)
            assert_true((double)g->memory_bytes > 0.93 * 1e9 * g->memory_gb_sold);
        assert_true(g->bf16_measured_flops_per_s < g->bf16_flops_per_s + 1);
        assert_true(strlen(g->source) > 0);
    }
    assert_null(gpu_at(gpu_count()));
}

int test_gpu(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_the_names_sellers_use),
        cmocka_unit_test(does_not_guess_at_names_it_does_not_know),
        cmocka_unit_test(keeps_the_model_when_the_memory_fits_no_variant),
        cmocka_unit_test(knows_a_slice_from_a_whole_gpu),
        cmocka_unit_test(figures_are_in_base_units),
        cmocka_unit_test(every_model_is_sane_and_found_by_each_of_its_names),
    };
    return cmocka_run_group_tests_name("inventory/gpu", tests, NULL, NULL);
}
