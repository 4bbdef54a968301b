/* References: the definitions in double; the backward pass as the textbook Jacobian, summed term by
 * term, rather than the kernel's factored form. fp32 tolerance: a row's sums are taken in pieces of
 * 512 in fp32 and then in double, so errors stay at a few 2^-24 of the row's scale; columns add up
 * to 300 rows in pieces of 64. */
#include "tests/unit/kernels/support.h"

#define TOLERANCE 3e-6

struct norm {
    enum k_type type;
    bool is_layernorm;
    int64_t rows, width;
    struct array x, w, b, dy, dx, dw, db;
};

static const double eps = 1e-5;

static struct norm norm_new(enum k_type type, bool is_layernorm, int64_t rows, int64_t width)
{
    struct norm t = {type, is_layernorm, rows, width, .db = {.n = 0}};
    t.x = array_random(type, rows * width, 0.3, 2, 1);
    t.w = array_random(type, width, 1, 0.5, 2);
    t.b = array_random(type, width, 0, 0.5, 3);
    t.dy = array_random(type, rows * width, 0, 1, 4);
    t.dx = array_random(type, rows * width, 0, 1, 5);
    t.dw = array_random(K_FP32, width, 0, 1, 6);
    t.db = array_random(K_FP32, width, 0, 1, 7);
    return t;
}

static void norm_release(struct norm *t)
{
    struct array *all[] = {&t->x, &t->w, &t->b, &t->dy, &t->dx, &t->dw, &t->db};
    for (size_t i = 0; i < BASE_COUNT(all); i++)
        array_free(all[i]);
}

static void stats_of(const struct norm *t, int64_t row, double *mean, double *rstd)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < t->width; i++)
        sum += array_get(&t->x, row * t->width + i);
    *mean = t->is_layernorm ? sum / (double)t->width : 0;
    for (int64_t i = 0; i < t->width; i++)
        squares += pow(array_get(&t->x, row * t->width + i) - *mean, 2);
    *rstd = 1 / sqrt(squares / (double)t->width + eps);
}

/* --- forward --- */

static struct k_norm_fwd forward_args(const struct norm *t, struct array *y, struct array *stats)
{
    return (struct k_norm_fwd){
        .type = t->type,
        .is_layernorm = t->is_layernorm,
        .rows = t->rows,
        .width = t->width,
        .eps = (float)eps,
        .x = t->x.data,
        .w = t->w.data,
        .b = t->is_layernorm ? t->b.data : NULL,
        .y = y->data,
        .stats = stats->data,
    };
}

static double *expected_y(const struct norm *t)
{
    double *y = doubles_new(t->rows * t->width);
    for (int64_t row = 0; row < t->rows; row++) {
        double mean, rstd;
        stats_of(t, row, &mean, &rstd);
        for (int64_t i = 0; i < t->width; i++) {
            double h = (array_get(&t->x, row * t->width + i) - mean) * rstd;
            double b = t->is_layernorm ? array_get(&t->b, i) : 0;
            y[row * t->width + i] = array_get(&t->w, i) * h + b;
        }
    }
    return y;
}

static void check_forward(struct pool *pool, const struct norm *t, const char *what)
{
    double *want = expected_y(t);
    EACH_TABLE(k)
    {
        struct array y = array_new(t->type, t->x.n), y3 = array_copy(&t->x);
        struct array stats = array_new(K_FP32, t->rows * (t->is_layernorm ? 2 : 1));
        struct k_norm_fwd a = forward_args(t, &y, &stats);
        k->norm_fwd(NULL, &a);
        a.x = a.y = y3.data; /* three threads, in place */
        k->norm_fwd(pool, &a);
        assert_same_bits(&y, &y3, what);
        assert_result(&y, want, TOLERANCE, what);
        array_free(&y);
        array_free(&y3);
        array_free(&stats);
    }
    free(want);
}

/* --- backward --- */

/* dx[i] = sum over j of dy[j] w[j] dh[j]/dx[i], with
 * dh[j]/dx[i] = rstd ([i == j] - 1/n - h[i] h[j] / n), the 1/n for LayerNorm only. */
static void expected_dx_row(const struct norm *t, int64_t row, double *dx)
{
    double mean, rstd, n = (double)t->width;
    stats_of(t, row, &mean, &rstd);
    for (int64_t i = 0; i < t->width; i++) {
        double hi = (array_get(&t->x, row * t->width + i) - mean) * rstd, sum = 0;
        for (int64_t j = 0; j < t->width; j++) {
            double hj = (array_get(&t->x, row * t->width + j) - mean) * rstd;
            double g = array_get(&t->dy, row * t->width + j) * array_get(&t->w, j);
            sum += g * rstd * ((i == j) - (t->is_layernorm ? 1 / n : 0) - hi * hj / n);
        }
        dx[row * t->width + i] += sum;
    }
}

static void expected_dw(const struct norm *t, double *dw, double *db)
{
    for (int64_t row = 0; row < t->rows; row++) {
        double mean, rstd;
        stats_of(t, row, &mean, &rstd);
        for (int64_t i = 0; i < t->width; i++) {
            double d = array_get(&t->dy, row * t->width + i);
            dw[i] += d * (array_get(&t->x, row * t->width + i) - mean) * rstd;
            db[i] += d;
        }
    }
}

struct gradients {
    struct array dx, dw, db;
};

static void gradients_release(struct gradients *g)
{
    array_free(&g->dx);
    array_free(&g->dw);
    array_free(&g->db);
}

/* in_place: dx replaces dy (only when it is overwritten). */
static struct gradients run_backward(
    const struct kernels *k, struct pool *pool, const struct norm *t, bool fresh, bool in_place)
{
    struct gradients g = {
        array_copy(in_place ? &t->dy : &t->dx), array_copy(&t->dw), array_copy(&t->db)};
    struct array y = array_new(t->type, t->x.n);
    struct array stats = array_new(K_FP32, t->rows * (t->is_layernorm ? 2 : 1));
    struct k_norm_fwd forward = forward_args(t, &y, &stats);
    k->norm_fwd(NULL, &forward);
    k->norm_bwd(pool, &(struct k_norm_bwd){
                          .type = t->type,
                          .is_layernorm = t->is_layernorm,
                          .overwrite_dx = fresh,
                          .accumulate_dw = !fresh,
                          .rows = t->rows,
                          .width = t->width,
                          .dy = in_place ? g.dx.data : t->dy.data,
                          .x = t->x.data,
                          .w = t->w.data,
                          .stats = stats.data,
                          .dx = g.dx.data,
                          .dw = g.dw.data,
                          .db = t->is_layernorm ? g.db.data : NULL,
                      });
    array_free(&y);
    array_free(&stats);
    return g;
}

static void check_backward(struct pool *pool, const struct norm *t, bool fresh, const char *what)
{
    double *dx = fresh ? doubles_new(t->x.n) : doubles_of(&t->dx);
    double *dw = fresh ? doubles_new(t->width) : doubles_of(&t->dw);
    double *db = fresh ? doubles_new(t->width) : doubles_of(&t->db);
    for (int64_t row = 0; row < t->rows; row++)
        expected_dx_row(t, row, dx);
    expected_dw(t, dw, db);
    EACH_TABLE(k)
    {
        struct gradients one = run_backward(k, NULL, t, fresh, false);
        struct gradients three = run_backward(k, pool, t, fresh, fresh);
        assert_same_bits(&one.dx, &three.dx, what);
        assert_same_bits(&one.dw, &three.dw, what);
        assert_same_bits(&one.db, &three.db, what);
        assert_result(&one.dx, dx, TOLERANCE, what);
        assert_result(&one.dw, dw, TOLERANCE, what);
        if (t->is_layernorm)
            assert_result(&one.db, db, TOLERANCE, what);
        gradients_release(&one);
        gradients_release(&three);
    }
    free(dx);
    free(dw);
    free(db);
}

static void both_norms_match_their_definitions(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 3}, {1, 24}, {5, 65}, {3, 513}, {300, 80}, {2, 1537}};
    struct pool *pool = pool_new(3);
    for (size_t i = 0; i < BASE_COUNT(shapes); i++)
        EACH_TYPE(type)
    for (int layernorm = 0; layernorm < 2; layernorm++) {
        if (layernorm && shapes[i][1] == 1)
            continue; /* a row of one has no direction: everything is zero */
        struct norm t = norm_new(type, layernorm, shapes[i][0], shapes[i][1]);
        check_forward(pool, &t, layernorm ? "layernorm forward" : "rmsnorm forward");
        for (int fresh = 0; fresh < 2; fresh++)
            check_backward(pool, &t, fresh, layernorm ? "layernorm" : "rmsnorm");
        norm_release(&t);
    }
    pool_free(pool);
}

static void zero_rows_give_zero_gradients(void **state)
{
    (void)state;
    struct norm t = norm_new(K_FP32, true, 0, 70);
    struct gradients g = run_backward(kernels_best(), NULL, &t, true, false);
    for (int64_t i = 0; i < 70; i++)
        assert_true(array_get(&g.dw, i) == 0 && array_get(&g.db, i) == 0);
    gradients_release(&g);
    norm_release(&t);
}

/* --- bias --- */

static void bias_gradient_is_the_sum_of_rows(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 1}, {7, 65}, {200, 130}};
    struct pool *pool = pool_new(3);
    for (size_t i = 0; i < BASE_COUNT(shapes); i++)
        EACH_TYPE(type)
    for (int accumulate = 0; accumulate < 2; accumulate++)
        EACH_TABLE(k)
        {
            int64_t rows = shapes[i][0], width = shapes[i][1];
            struct array dy = array_random(type, rows * width, 0, 1, 1);
            struct array one = array_random(K_FP32, width, 0, 1, 2);
            struct array three = array_copy(&one);
            double *want = accumulate ? doubles_of(&one) : doubles_new(width);
            for (int64_t j = 0; j < rows * width; j++)
                want[j % width] += array_get(&dy, j);
            struct k_bias_bwd a = {type, rows, width, accumulate, dy.data, one.data};
            k->bias_bwd(NULL, &a);
            a.db = three.data;
            k->bias_bwd(pool, &a);
            assert_same_bits(&one, &three, "bias");
            assert_result(&one, want, TOLERANCE, "bias");
            free(want);
            array_free(&dy);
            array_free(&one);
            array_free(&three);
        }
    pool_free(pool);
}

int test_norm(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_norms_match_their_definitions),
        cmocka_unit_test(zero_rows_give_zero_gradients),
        cmocka_unit_test(bias_gradient_is_the_sum_of_rows),
    };
    return cmocka_run_group_tests_name("kernels/norm", tests, NULL, NULL);
}
