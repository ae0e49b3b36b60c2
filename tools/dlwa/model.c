/* model.c - rowan-dlwa --model: the model of the device, beside what the paper measured (section 2.4, Figure 2): streams
 * that each write on in a log of its own, one write of each in turn. */
#include <stdio.h>
#include <string.h>

#include "common/pm/wear.h"
#include "tools/dlwa/dlwa.h"

enum {
    STEP = 18, /* the paper's threads of one server */
    STEPS = 12,
    WRITES = 4096,          /* of a stream */
    LOG_REQUESTS = 1 << 24, /* of a stream's addresses */
    SIZES = 2,
    PAPER_STREAMS = 144,
};

static const uint32_t sizes[SIZES] = {64, 128};
static const double paper[SIZES] = {2.48, 1.58}; /* at PAPER_STREAMS; below 90 "negligible" */

struct figure {
    uint32_t streams[STEPS];
    double ratios[SIZES][STEPS];
};

static double ratio_of(uint32_t streams, uint32_t write_bytes, uint32_t dimms)
{
    static struct wear wear; /* large */
    const uint64_t requests = write_bytes / WEAR_REQUEST_BYTES;

    wear_init(&wear, dimms, 1);
    for (uint64_t i = 0; i < WRITES; i++) {
        for (uint64_t stream = 0; stream < streams; stream++)
            wear_write(&wear, stream * LOG_REQUESTS + i * requests, requests, WEAR_DATA);
    }
    const struct wear_count total = wear_total(&wear);
    return wear_ratio(total.request_bytes, total.media_bytes);
}

static void fill(struct figure *figure, uint32_t dimms)
{
    for (uint32_t i = 0; i < STEPS; i++) {
        figure->streams[i] = STEP * (i + 1);
        for (uint32_t size = 0; size < SIZES; size++)
            figure->ratios[size][i] = ratio_of(figure->streams[i], sizes[size], dimms);
    }
}

static int print_json(const struct dlwa_settings *settings, const struct figure *figure)
{
    json_t *rows = json_array();

    for (uint32_t i = 0; i < STEPS; i++)
        json_array_append_new(rows,
                              json_pack("{s:i, s:f, s:f}", "streams", (int)figure->streams[i], "64",
                                        figure->ratios[0][i], "128", figure->ratios[1][i]));
    return tool_print_json(json_pack("{s:i, s:i, s:{s:i, s:f, s:f}, s:o}", "dimms",
                                     (int)settings->dimms, "open_lines",
                                     (int)settings->dimms * WEAR_LINES_PER_DIMM, "paper", "streams",
                                     PAPER_STREAMS, "64", paper[0], "128", paper[1], "rows", rows));
}

static void print_text(const struct dlwa_settings *settings, const struct figure *figure)
{
    printf(
        "media bytes for each byte asked, %d open lines of %d B (%llu DIMMs)\n\n%8s  %6s %6s  %s\n",
        (int)settings->dimms * WEAR_LINES_PER_DIMM, WEAR_LINE_BYTES,
        (unsigned long long)settings->dimms, "streams", "64 B", "128 B", "paper, with 3 DIMMs");
    for (uint32_t i = 0; i < STEPS; i++) {
        printf("%8u  %6.2f %6.2f", figure->streams[i], figure->ratios[0][i], figure->ratios[1][i]);
        if (figure->streams[i] == PAPER_STREAMS)
            printf("  %.2f and %.2f", paper[0], paper[1]);
        else if (figure->streams[i] < 90)
            printf("  negligible");
        printf("\n");
    }
}

/* --- the picture --- */

enum { WIDTH = 640, HEIGHT = 360, LEFT = 50, BOTTOM = 320, PLOT_WIDTH = 560, PLOT_HEIGHT = 290 };
static const char *const colours[SIZES] = {"#c0392b", "#2c6fbb"};

static double x_of(double streams)
{
    return LEFT + streams / (STEP * STEPS) * PLOT_WIDTH;
}

static double y_of(double ratio)
{
    return BOTTOM - ratio / 4 * PLOT_HEIGHT;
}

static void draw(FILE *file, const struct figure *figure)
{
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            WIDTH, HEIGHT);
    for (int ratio = 0; ratio <= 4; ratio++)
        fprintf(file,
                "<path d=\"M%d %.1fh%d\" stroke=\"#ddd\"/><text x=\"30\" y=\"%.1f\">%d</text>\n",
                LEFT, y_of(ratio), PLOT_WIDTH, y_of(ratio) + 4, ratio);
    for (uint32_t i = 0; i < STEPS; i++)
        fprintf(file, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%u</text>\n",
                x_of(figure->streams[i]), BOTTOM + 16, figure->streams[i]);
    for (uint32_t size = 0; size < SIZES; size++) {
        fprintf(file, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"",
                colours[size]);
        for (uint32_t i = 0; i < STEPS; i++)
            fprintf(file, "%.1f,%.1f ", x_of(figure->streams[i]), y_of(figure->ratios[size][i]));
        fprintf(file,
                "\"/>\n<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"none\" stroke=\"%s\"/>\n"
                "<text x=\"60\" y=\"%u\" fill=\"%s\">writes of %u B; circle: the paper</text>\n",
                x_of(PAPER_STREAMS), y_of(paper[size]), colours[size], 45 + 16 * size,
                colours[size], sizes[size]);
    }
    fprintf(file,
            "<text x=\"%d\" y=\"20\">media bytes for each byte asked, by streams</text>\n</svg>\n",
            LEFT);
}

static int write_svg(const char *path, const struct figure *figure)
{
    FILE *file = fopen(path, "w");

    if (!file)
        return tool_say("cannot write %s: %m", path);
    draw(file, figure);
    const bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed)
        return tool_say("cannot write %s: %m", path);
    return EXIT_DONE;
}

int dlwa_model(const struct dlwa_settings *settings)
{
    struct figure figure;
    int code = EXIT_DONE;

    fill(&figure, (uint32_t)settings->dimms);
    if (*settings->svg)
        code = write_svg(settings->svg, &figure);
    if (code)
        return code;
    if (settings->json)
        return print_json(settings, &figure);
    print_text(settings, &figure);
    return EXIT_DONE;
}
